package argocd

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/strictjson"
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

// Hydrates reports whether the application's source is hydrated. argocd-server asks for that along with every refresh, and
// where there is nothing to hydrate, no controller ever takes the annotation away.
func (a *App) Hydrates() bool {
	var spec struct {
		SourceHydrator json.RawMessage `json:"sourceHydrator"`
	}
	return strictjson.Fields(a.Spec, &spec) == nil && present(spec.SourceHydrator) != nil
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
			now.definition = newDefinition(now)
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

// Cascades returns those of an application's finalizers that are synchronised, in their order: the application controller
// goes by the first. argocd-server adds another after the one that is there.
func (a *App) Cascades() []string { return cascades(a.Finalizers) }

func cascades(finalizers []string) []string {
	var out []string
	for _, f := range finalizers {
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
