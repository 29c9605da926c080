package argocd

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/converge"
)

// App is what is kept of an application: everything but managed fields and, on the side that does not own it, the
// status, of which only a hash and the few things that decisions need remain. An App is never changed.
type App struct {
	Name        types.NamespacedName
	UID         types.UID
	Version     string // the resource version
	Labels      map[string]string
	Annotations map[string]string
	Finalizers  []string
	Deleting    bool // it has a deletion timestamp
	Spec        json.RawMessage
	Operation   json.RawMessage // nil if there is none
	Status      Status

	// definition is shared with the App that this one replaces, as long as what it is made of stays the same: most
	// changes are of the status.
	definition *definition
}

// definition is made of spec and metadata when it is first asked for.
type definition struct {
	once    sync.Once
	payload []byte
	version converge.Version
	err     error
}

// ID returns the application's namespace and name.
func (a *App) ID() types.NamespacedName { return a.Name }

// Revision returns the application's resource version.
func (a *App) Revision() string { return a.Version }

// SourceUID returns the UID of the hub's application that this one, on a spoke, was made from; empty if it was not.
func (a *App) SourceUID() string { return a.Annotations[AnnotationSourceUID] }

// Hydrates reports whether the application's source is hydrated. argocd-server asks for that along with every refresh, and
// where there is nothing to hydrate, no controller ever takes the annotation away.
func (a *App) Hydrates() bool {
	var spec struct {
		SourceHydrator json.RawMessage `json:"sourceHydrator"`
	}
	return json.Unmarshal(a.Spec, &spec) == nil && present(spec.SourceHydrator) != nil
}

// Reduce returns what is kept of an application; keepStatus says whether that includes the status as it came. old is what
// was kept before, or nil.
func Reduce(keepStatus bool) func(a *Application, old *App) *App {
	return func(a *Application, old *App) *App {
		now := &App{
			Name:        types.NamespacedName{Namespace: a.Namespace, Name: a.Name},
			UID:         a.UID,
			Version:     a.ResourceVersion,
			Labels:      a.Labels,
			Annotations: a.Annotations,
			Finalizers:  a.Finalizers,
			Deleting:    a.DeletionTimestamp != nil,
			Spec:        a.Spec,
			Operation:   present(a.Operation),
		}
		if old != nil && old.sameDefinition(now) {
			now.Spec, now.Labels, now.Annotations = old.Spec, old.Labels, old.Annotations
			now.definition = old.definition
		} else {
			now.definition = &definition{}
		}
		now.Status = reduceStatus(present(a.Status), keepStatus)
		return now
	}
}

// present returns nil for a JSON value that says nothing.
func present(raw json.RawMessage) json.RawMessage {
	switch string(raw) {
	case "", "null", "{}":
		return nil
	default:
		return raw
	}
}

func (a *App) sameDefinition(b *App) bool {
	return a.Deleting == b.Deleting && bytes.Equal(a.Spec, b.Spec) && maps.Equal(a.Labels, b.Labels) &&
		maps.Equal(a.Annotations, b.Annotations) && slices.Equal(a.Finalizers, b.Finalizers)
}

// Definition is what is synchronised of an application besides its status, as it crosses the wire. Its JSON encoding is
// the same whenever it is equal.
type Definition struct {
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
	Finalizers  []string          `json:"finalizers,omitempty"`
	Spec        json.RawMessage   `json:"spec,omitempty"`
	// Deleting says that the application is being deleted, along with its resources if its finalizers say so. The rest
	// is empty then, so that the version of a deletion does not depend on how far it has come.
	Deleting bool `json:"deleting,omitempty"`
}

// Define returns an application's definition in its JSON encoding, as the spoke should have it, and the version of that.
// It fails for a spec that is no JSON object, which no API server stores.
func (a *App) Define() ([]byte, converge.Version, error) {
	d := a.definition
	d.once.Do(func() {
		d.payload, d.err = define(a)
		d.version = converge.VersionOf(d.payload)
	})
	return d.payload, d.version, d.err
}

func define(a *App) ([]byte, error) {
	if a.Deleting {
		return json.Marshal(Definition{Deleting: true})
	}
	spec, err := normaliseSpec(a.Spec)
	if err != nil {
		return nil, err
	}
	d := Definition{Labels: a.Labels, Annotations: shared(a.Annotations)}
	if d.Spec, err = json.Marshal(spec); err != nil {
		return nil, fmt.Errorf("spec: %w", err)
	}
	for _, f := range a.Finalizers {
		if IsCascade(f) {
			d.Finalizers = append(d.Finalizers, f)
		}
	}
	slices.Sort(d.Finalizers)
	return json.Marshal(d)
}

// shared returns the annotations that both sides have.
func shared(annotations map[string]string) map[string]string {
	out := make(map[string]string, len(annotations))
	for k, v := range annotations {
		if !IsLocal(k) {
			out[k] = v
		}
	}
	return out
}
