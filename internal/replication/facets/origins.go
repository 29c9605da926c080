package facets

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/argocd"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/converge"
)

// origins remembers which copy was made from which original. An annotation says so too, but somebody may take it away, and
// the original be deleted before the annotation has been put back.
type origins struct {
	mu    sync.Mutex
	known map[converge.Key]origin // guarded by mu
}

// origin is a copy, and the UID of the original that it was made from.
type origin struct {
	made   types.UID
	from   string
	status argocd.Status // that it had when it was deleted by others, until it is made again
}

// headOf returns an application's head, nil if there is none.
func headOf(app *argocd.App) *argocd.Head {
	if app == nil {
		return nil
	}
	return &app.Head
}

func newOrigins() *origins { return &origins{known: make(map[converge.Key]origin)} }

// note takes note of what a copy was made from, as its annotation has it. A nil copy is gone.
func (o *origins) note(key converge.Key, object *argocd.Head) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case object == nil:
		delete(o.known, key)
	case object.SourceUID() != "":
		o.known[key] = origin{made: object.UID, from: object.SourceUID()}
	}
}

// of returns the UID of the original that an object was made from, empty if it was made from none.
func (o *origins) of(key converge.Key, object *argocd.Head) string {
	if object.SourceUID() != "" {
		return object.SourceUID()
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if known := o.known[key]; known.made == object.UID {
		return known.from
	}
	return ""
}

// lost takes note of the status of a copy that is gone. If nobody here deleted it, it is made again.
func (o *origins) lost(key converge.Key, app *argocd.App) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if known, ok := o.known[key]; ok && known.made == app.UID {
		known.status = app.Status
		o.known[key] = known
	}
}

// again returns whether a copy of an original was made before, and the status that it had last.
func (o *origins) again(key converge.Key, original string) (argocd.Status, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	known, ok := o.known[key]
	return known.status, ok && known.from == original
}
