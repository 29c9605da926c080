package identity

import (
	"context"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/signal"
)

// Restriction is a Trust that refuses some of the peers which another Trust accepts, for a reason that may come and go,
// such as a blocklist. It is safe for concurrent use.
type Restriction struct {
	trust   Trust
	refuses func(Peer) error
	changed signal.Broadcast // an answer may be another
}

var _ Trust = (*Restriction)(nil)

// Restrict returns a Trust that accepts what trust does, unless refuses returns why not. That is asked once trust has
// accepted it. Run must run.
func Restrict(trust Trust, refuses func(Peer) error) *Restriction {
	return &Restriction{trust: trust, refuses: refuses}
}

// Verify implements Trust.
func (r *Restriction) Verify(peer Peer) error {
	if err := r.trust.Verify(peer); err != nil {
		return err
	}
	return r.refuses(peer)
}

// Changed implements Trust.
func (r *Restriction) Changed() <-chan struct{} {
	return r.changed.Changed()
}

// Recheck has all certificates verified again: others may be refused than before.
func (r *Restriction) Recheck() {
	r.changed.Give()
}

// Run passes on the changes of the other Trust until the context ends.
func (r *Restriction) Run(ctx context.Context) {
	for changed := r.trust.Changed(); ; {
		select {
		case <-ctx.Done():
			return
		case <-changed:
			changed = r.trust.Changed()
			r.Recheck()
		}
	}
}
