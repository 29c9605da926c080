package argocd

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/strictjson"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/converge"
)

// Definition is what is synchronised of an application besides its status, as it crosses the wire. Its JSON encoding is
// the same whenever it is equal.
type Definition struct {
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
	Finalizers  []string          `json:"finalizers,omitempty"`
	Spec        json.RawMessage   `json:"spec,omitempty"`
	// Deleting says that the application is being deleted, along with its resources if its finalizers say so. The rest is
	// empty then. The finalizers go along because whoever deletes with a cascade adds one first, and the spoke may get both
	// at once. They are taken away one by one as a deletion proceeds, on each side at its own time, so they are no part of
	// its version: that is the same on both sides however far the deletion has come.
	Deleting bool `json:"deleting,omitempty"`
}

// Encode returns a definition in its JSON encoding, and the version of that.
func (d Definition) Encode() ([]byte, converge.Version, error) {
	version := d
	if d.Deleting {
		version = Definition{Deleting: true}
	}
	payload, err := json.Marshal(d)
	if err != nil {
		return nil, converge.Version{}, fmt.Errorf("encode a definition: %w", err)
	}
	if !d.Deleting || len(d.Finalizers) == 0 {
		return payload, converge.VersionOf(payload), nil
	}
	short, err := json.Marshal(version)
	if err != nil {
		return nil, converge.Version{}, fmt.Errorf("encode a definition: %w", err)
	}
	return payload, converge.VersionOf(short), nil
}

// Project returns the name of the application's project, empty if its spec has none.
func (d Definition) Project() string { return parts{spec: d.Spec}.meant().Project }

// definition is what an application's spec and metadata come to, each made when it is first asked for.
type definition struct {
	offered  func() encoded          // to the other side
	mirrored func() encoded          // to the other side, which is only to show it
	own      func() converge.Version // of the definition as it stands
	meant    func() meant
}

// meant is for whom an application is, as its spec has it.
type meant struct {
	Destination struct {
		Name string `json:"name"`
	} `json:"destination"`
	Project string `json:"project"`
}

type encoded struct {
	payload []byte
	version converge.Version
	err     error
}

// parts are what a definition is made of.
type parts struct {
	labels, annotations map[string]string
	cascades            []string
	deleting            bool
	spec                json.RawMessage
}

func newDefinition(a *App) *definition {
	p := parts{a.Labels, a.Annotations, a.Cascades(), a.Deleting, a.Spec}
	encode := func(build func() (Definition, error)) func() encoded {
		return sync.OnceValue(func() encoded {
			d, err := build()
			if err != nil {
				return encoded{err: err}
			}
			var e encoded
			e.payload, e.version, e.err = d.Encode()
			return e
		})
	}
	return &definition{
		offered:  encode(func() (Definition, error) { return p.define(true) }),
		mirrored: encode(p.mirror),
		own: sync.OnceValue(func() converge.Version {
			d, err := p.define(false)
			if err != nil {
				return converge.Version{}
			}
			_, version, _ := d.Encode() // which cannot fail: it came as JSON
			return version
		}),
		meant: sync.OnceValue(p.meant),
	}
}

// define makes a definition; inCluster says whether its destination is to be the cluster that Argo CD runs in, whatever it
// is here. It fails for a spec that is no JSON object, which no API server stores.
func (p parts) define(inCluster bool) (Definition, error) {
	if p.deleting {
		return Definition{Deleting: true, Finalizers: p.cascades}, nil
	}
	spec, err := normalizeSpec(p.spec)
	if err != nil {
		return Definition{}, err
	}
	if inCluster {
		destination, ok := spec["destination"].(map[string]any)
		if !ok {
			destination = make(map[string]any)
			spec["destination"] = destination
		}
		delete(destination, "server")
		destination["name"] = InCluster
	}
	d := Definition{Labels: p.labels, Annotations: shared(p.annotations), Finalizers: p.cascades}
	if d.Spec, err = json.Marshal(spec); err != nil {
		return Definition{}, fmt.Errorf("spec: %w", err)
	}
	return d, nil
}

// mirror makes the definition of what the other side is only to show. Nobody there works off finalizers, and it stays as
// long as the application is here.
func (p parts) mirror() (Definition, error) {
	p.deleting, p.cascades = false, nil
	return p.define(true)
}

func (p parts) meant() meant {
	var m meant
	if strictjson.Fields(p.spec, &m) != nil {
		return meant{}
	}
	return m
}

// Define returns an application's definition in its JSON encoding, as the other side should have it, and the version of
// that. It fails for a spec that is no JSON object, which no API server stores.
func (a *App) Define() ([]byte, converge.Version, error) {
	e := a.definition.offered()
	return e.payload, e.version, e.err
}

// Mirror is Define for another side that is only to show it.
func (a *App) Mirror() ([]byte, converge.Version, error) {
	e := a.definition.mirrored()
	return e.payload, e.version, e.err
}

// Destination returns the name of the application's destination, empty if it has none.
func (a *App) Destination() string { return a.definition.meant().Destination.Name }

// Project returns the name of the application's project, empty if its spec has none.
func (a *App) Project() string { return a.definition.meant().Project }

// Own returns the application's definition as it stands.
func (a *App) Own() (Definition, error) {
	return parts{a.Labels, a.Annotations, a.Cascades(), a.Deleting, a.Spec}.define(false)
}

// AppliedVersion returns the source version that a replica object was made from. If the object has changed since, it returns
// the object's own version.
func (a *App) AppliedVersion() converge.Version { return a.appliedVersion(a.definition.own()) }

// appliedVersion returns the version that a replica object was made from, by its annotation. own is its own version.
func (h *Head) appliedVersion(own converge.Version) converge.Version {
	if of, ok := h.unchangedSince(own); ok {
		return of
	}
	return own
}

// unchangedSince returns the version that a replica object was made from, if its own version still is the one that it was given.
func (h *Head) unchangedSince(own converge.Version) (converge.Version, bool) {
	of, made, differ := strings.Cut(h.Annotations[AnnotationApplied], " ")
	if !differ {
		made = of
	}
	version, err := converge.ParseVersion(of)
	return version, err == nil && made == own.String()
}

// Applied is the annotation of a replica object that was made from a version and has its own.
func Applied(of, own converge.Version) string {
	if of == own {
		return of.String()
	}
	return of.String() + " " + own.String()
}
