package facets

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/argocd"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/converge"
)

// sourceRefs remembers which replica object was made from which source object. An annotation says so too, but somebody may
// remove it, and the source object be deleted before the annotation has been restored.
type sourceRefs struct {
	mu    sync.Mutex
	known map[converge.Key]sourceRef // guarded by mu
}

// sourceRef is a replica object, and the UID of the source object that it was made from.
type sourceRef struct {
	replica types.UID
	source  string
	status  argocd.Status // that it had when it was deleted by others, until it is made again
}

// headOf returns an application's head, nil if there is none.
func headOf(app *argocd.App) *argocd.Head {
	if app == nil {
		return nil
	}
	return &app.Head
}

func newSourceRefs() *sourceRefs { return &sourceRefs{known: make(map[converge.Key]sourceRef)} }

// note notes what a replica object was made from, as its annotation says. A nil object is gone.
func (o *sourceRefs) note(key converge.Key, object *argocd.Head) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case object == nil:
		delete(o.known, key)
	case object.SourceUID() != "":
		o.known[key] = sourceRef{replica: object.UID, source: object.SourceUID()}
	}
}

// sourceUID returns the UID of the source object that an object was made from, empty if it was made from none.
func (o *sourceRefs) sourceUID(key converge.Key, object *argocd.Head) string {
	if object.SourceUID() != "" {
		return object.SourceUID()
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if known := o.known[key]; known.replica == object.UID {
		return known.source
	}
	return ""
}

// noteDeleted notes the status of a replica object that is gone. If this program did not delete it, it is created again.
func (o *sourceRefs) noteDeleted(key converge.Key, app *argocd.App) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if known, ok := o.known[key]; ok && known.replica == app.UID {
		known.status = app.Status
		o.known[key] = known
	}
}

// recreated reports whether a source object had a replica object before, and returns the last status of that.
func (o *sourceRefs) recreated(key converge.Key, source string) (argocd.Status, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	known, ok := o.known[key]
	return known.status, ok && known.source == source
}
