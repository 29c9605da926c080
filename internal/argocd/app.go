package argocd

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/converge"
)

// App is what is kept of an application: everything but managed fields and, on the side that does not own it, the
// status, of which only a hash and the few things that decisions need remain. An App is never changed.
type App struct {
	Head

	Spec      json.RawMessage
	Operation json.RawMessage // nil if there is none
	Status    Status

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
		now := &App{Head: headOf(&a.ObjectMeta), Spec: a.Spec, Operation: present(a.Operation)}
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
	// is empty then. The finalizers go along because whoever deletes with a cascade adds one first, and the spoke may
	// hear of both at once. They are taken away one by one as a deletion proceeds, on each side at its own time, so they
	// are no part of its version: that is the same on both sides however far the deletion has come.
	Deleting bool `json:"deleting,omitempty"`
}

// Define returns an application's definition in its JSON encoding, as the spoke should have it, and the version of that.
// It fails for a spec that is no JSON object, which no API server stores.
func (a *App) Define() ([]byte, converge.Version, error) {
	d := a.definition
	d.once.Do(func() { d.payload, d.version, d.err = define(a) })
	return d.payload, d.version, d.err
}

func define(a *App) ([]byte, converge.Version, error) {
	if a.Deleting {
		_, version, err := encode(Definition{Deleting: true})
		if err != nil {
			return nil, version, err
		}
		payload, _, err := encode(Definition{Deleting: true, Finalizers: a.Cascades()})
		return payload, version, err
	}
	spec, err := normaliseSpec(a.Spec)
	if err != nil {
		return nil, converge.Version{}, err
	}
	d := Definition{Labels: a.Labels, Annotations: shared(a.Annotations), Finalizers: a.Cascades()}
	if d.Spec, err = json.Marshal(spec); err != nil {
		return nil, converge.Version{}, fmt.Errorf("spec: %w", err)
	}
	return encode(d)
}

// encode returns a definition in its JSON encoding, and the version of that.
func encode(d Definition) ([]byte, converge.Version, error) {
	payload, err := json.Marshal(d)
	if err != nil {
		return nil, converge.Version{}, fmt.Errorf("encode a definition: %w", err)
	}
	return payload, converge.VersionOf(payload), nil
}

// Cascades returns those of an application's finalizers that are synchronised, in their order: the application controller
// goes by the first. argocd-server adds another after the one that is there.
func (a *App) Cascades() []string {
	var out []string
	for _, f := range a.Finalizers {
		if IsCascade(f) {
			out = append(out, f)
		}
	}
	return out
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
