package sessions

import (
	"context"
	"crypto/x509"
	"maps"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity"
)

// Trust says which certificates are good, whatever was said of them when a connection was made.
type Trust interface {
	// VerifyClient returns nil if the certificates that an agent presented, its own first, are good now.
	VerifyClient(presented []*x509.Certificate) error
	// Changed returns a channel that is closed when that may have changed.
	Changed() <-chan struct{}
}

// proof is what a stream rests on.
type proof struct {
	certificates []*x509.Certificate
	revoke       context.CancelCauseFunc // ends the stream
}

// rest returns a context that ends when the stream may no longer rest on who the peer has proven to be: at the latest when
// its certificate expires. The function that it returns is called when the stream is over.
func (s *Service) rest(ctx context.Context, who identity.Peer) (context.Context, context.CancelFunc, error) {
	ctx, expire := context.WithDeadlineCause(ctx, who.NotAfter, errExpired)
	ctx, revoke := context.WithCancelCause(ctx)
	p := &proof{certificates: who.Certificates, revoke: revoke}
	s.mu.Lock()
	s.proofs[p] = struct{}{}
	s.mu.Unlock()
	end := func() {
		s.mu.Lock()
		delete(s.proofs, p)
		s.mu.Unlock()
		revoke(nil)
		expire()
	}
	// The connection may be older than what is trusted now, or have been made while that changed. From here on verify
	// sees the proof.
	if err := s.options.Trust.VerifyClient(who.Certificates); err != nil {
		end()
		return nil, nil, revoked(err)
	}
	return ctx, end, nil
}

// watch ends streams whose proof is no longer good, until the context ends.
func (s *Service) watch(ctx context.Context) {
	for {
		changed := s.options.Trust.Changed()
		s.verify()
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
	}
}

// verify ends the streams whose proof is no longer good.
func (s *Service) verify() {
	s.mu.RLock()
	proofs := slices.Collect(maps.Keys(s.proofs)) // to verify them takes too long for a lock
	s.mu.RUnlock()
	for _, p := range proofs {
		if err := s.options.Trust.VerifyClient(p.certificates); err != nil {
			p.revoke(revoked(err))
		}
	}
}

func revoked(err error) error {
	return status.Error(codes.Unauthenticated, "the agent's certificate is no longer trusted: "+err.Error())
}
