// Package identitytest is for tests of what asks whether certificates are trusted.
package identitytest

import (
	"crypto/x509"
	"sync"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/signal"
)

// Trust is an identity.Trust that trusts every certificate until Change says why not. It is safe for concurrent use.
type Trust struct {
	changed signal.Broadcast

	mu       sync.Mutex
	refusal  error // guarded by mu
	verified int   // guarded by mu
}

// VerifyClient implements identity.Trust.
func (t *Trust) VerifyClient([]*x509.Certificate) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.verified++
	return t.refusal
}

// Changed implements identity.Trust.
func (t *Trust) Changed() <-chan struct{} { return t.changed.Changed() }

// Change refuses every certificate from now on with that error; nil trusts them.
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
