package identity

import (
	"context"
	"crypto/x509"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/signal"
)

// Restriction is a Trust that refuses some of the certificates which another Trust accepts, for a reason that may come and go,
// such as a blocklist. It is safe for concurrent use.
type Restriction struct {
	trust   Trust
	refuses func(*x509.Certificate) error
	changed signal.Broadcast // an answer may be another
}

var _ Trust = (*Restriction)(nil)

// Restrict returns a Trust that accepts what trust does, unless refuses returns why not. That is asked about a peer's own
// certificate, once trust has accepted it. Run must run.
func Restrict(trust Trust, refuses func(*x509.Certificate) error) *Restriction {
	return &Restriction{trust: trust, refuses: refuses}
}

// VerifyClient implements Trust.
func (r *Restriction) VerifyClient(presented []*x509.Certificate) error {
	if err := r.trust.VerifyClient(presented); err != nil {
		return err
	}
	if len(presented) == 0 { // which no Trust accepts
		return ErrUnauthenticated
	}
	return r.refuses(presented[0])
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
