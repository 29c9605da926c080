package facets

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/argocd"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/converge"
)

// origins remembers which of the spoke's applications was made from which of the hub's. An annotation says so too, but
// somebody may take it away, and the hub delete its application before the annotation has been put back.
type origins struct {
	mu    sync.Mutex
	known map[converge.Key]origin // guarded by mu
}

// origin is a spoke's application, and the UID of the hub's that it was made from.
type origin struct {
	spoke types.UID
	hub   string
}

func newOrigins() *origins { return &origins{known: make(map[converge.Key]origin)} }

// note takes note of what an application was made from, as its annotation has it.
func (o *origins) note(key converge.Key, app *argocd.App) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case app == nil:
		delete(o.known, key)
	case app.SourceUID() != "":
		o.known[key] = origin{app.UID, app.SourceUID()}
	}
}

// of returns the UID of the hub's application that an application was made from, empty if it was made from none.
func (o *origins) of(key converge.Key, app *argocd.App) string {
	if app.SourceUID() != "" {
		return app.SourceUID()
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if known := o.known[key]; known.spoke == app.UID {
		return known.hub
	}
	return ""
}
