// Package identitytest is for tests of what asks whether peers are trusted.
package identitytest

import (
	"sync"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/signal"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity"
)

// Trust is an identity.Trust that trusts everybody until Change says why not. It is safe for concurrent use.
type Trust struct {
	changed signal.Broadcast

	mu       sync.Mutex
	refusal  error // guarded by mu
	verified int   // guarded by mu
}

// Verify implements identity.Trust.
func (t *Trust) Verify(identity.Peer) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.verified++
	return t.refusal
}

// Changed implements identity.Trust.
func (t *Trust) Changed() <-chan struct{} { return t.changed.Changed() }

// Change refuses everybody from now on with that error; nil trusts them.
func (t *Trust) Change(refusal error) {
	t.mu.Lock()
	t.refusal = refusal
	t.mu.Unlock()
	t.changed.Give()
}

// Verified returns how many times it was asked.
func (t *Trust) Verified() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.verified
}
