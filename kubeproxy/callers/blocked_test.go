package callers_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/blocklist"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/identitytest"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/pki"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/apihttp"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/kubeproxy/callers"
)

// blocked is a blocklist, unknown at first.
type blocked struct {
	mu      sync.Mutex
	keys    []string
	err     error
	changed chan struct{}
}

func (b *blocked) Blocked() (blocklist.List, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return blocklist.Of(b.keys), b.err
}

func (b *blocked) Changed() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.changed
}

func (b *blocked) set(keys ...string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.keys, b.err = keys, nil
	close(b.changed)
	b.changed = make(chan struct{})
}

// Whoever stole a caller's certificate is refused, over connections that are open too, and its requests end.
func TestBlockedCallersAreRefused(t *testing.T) {
	list := &blocked{err: errors.New("no principal"), changed: make(chan struct{})}
	table := tableOf(t, "spiffe://example.org/argo=*")
	trust := callers.Restrict(&identitytest.Trust{}, list, table)
	who := callers.New(callers.Options{Trust: trust, Blocklist: list, Table: table})
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	running.Go(func() { trust.Run(ctx) })
	running.Go(func() { who.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })

	r := request(t, time.Hour) // by agent "a"
	refuses := func(code int, text string) {
		t.Helper()
		_, _, _, err := who.Bind(r)
		refusal := new(apihttp.Error)
		require.ErrorAs(t, err, &refusal)
		require.Equal(t, code, refusal.Code)
		require.ErrorContains(t, refusal, text)
	}
	becomes := func(change func()) {
		t.Helper()
		changed := trust.Changed()
		change()
		select {
		case <-changed:
		case <-time.After(2 * time.Minute):
			require.FailNow(t, "nothing changes")
		}
	}
	refuses(http.StatusServiceUnavailable, "blocklist is not known yet: no principal")
	for _, key := range []string{"agent.a", blocklist.Certificate(r.TLS.PeerCertificates[0])} {
		becomes(func() { list.set() })
		_, bound, end, err := who.Bind(r)
		require.NoError(t, err)
		becomes(func() { list.set(key) })
		<-bound.Context().Done()
		require.ErrorContains(t, callers.CertificateError(bound.Context()), "is blocked")
		end()
		refuses(http.StatusUnauthorized, "is blocked")
	}

	// Who may reach all agents does not reach a blocked one.
	admit := func(target string) error {
		_, err := who.Admit(httptest.NewRequestWithContext(t.Context(), http.MethodGet, target, http.NoBody), peerOf(t, pki.ClientOptions{CommonName: "argo", SPIFFEID: "spiffe://example.org/argo"}))
		return err
	}
	list.set("agent.a")
	require.ErrorContains(t, admit("/agents/a/api"), "argocd-agentctl agent unblock a")
	require.NoError(t, admit("/agents/b/api"))
}
