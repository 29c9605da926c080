package callers_test

import (
	"context"
	"crypto/x509"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/pki"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/token"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/apihttp"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/kubeproxy/callers"
)

// peerOf returns a peer with such a certificate.
func peerOf(t *testing.T, options pki.ClientOptions) identity.Peer {
	t.Helper()
	ca, err := pki.NewCA(pki.CAOptions{CommonName: "CA"})
	require.NoError(t, err)
	pair, err := ca.IssueClient(options)
	require.NoError(t, err)
	certificate, err := pair.TLS()
	require.NoError(t, err)
	return identity.Peer{Certificates: []*x509.Certificate{certificate.Leaf}}
}

func TestCallersAreKnownByCommonNameOrSPIFFEID(t *testing.T) {
	const server = "spiffe://example.org/ns/argocd/sa/argocd-server"
	for auth, c := range map[string]struct {
		common, id, target string
		want               callers.Call
	}{
		identity.DefaultAuth: {"a", "spiffe://example.org/x", "/api", callers.Call{Caller: "a", Agent: "a", Path: "/api"}},
		`mtls:uri:^spiffe://example\.org/ns/argocd/sa/([^/]+)$`: {"x", "spiffe://example.org/ns/argocd/sa/b", "/api", callers.Call{Caller: "b", Agent: "b", Path: "/api"}},
		"mtls:subject:^CN=([^,]+)":                              {"c", server, "/agents/d/api", callers.Call{Caller: server, Agent: "d", Path: "/api"}},
		"mtls:subject:CN=(.+)":                                  {"argo", "", "/agents/e/api", callers.Call{Caller: "argo", Agent: "e", Path: "/api"}},
	} {
		t.Run(auth, func(t *testing.T) {
			identify, err := identity.New(identity.Options{Auth: auth})
			require.NoError(t, err)
			who := callers.New(callers.Options{Identify: identify, AllAgents: []string{server, "argo"}})
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, c.target, http.NoBody)
			call, err := who.Admit(r, peerOf(t, pki.ClientOptions{CommonName: c.common, SPIFFEID: c.id}))
			require.NoError(t, err)
			require.Equal(t, c.want, call)
		})
	}
}

func TestTokenWithoutKeysIsUnauthorized(t *testing.T) {
	identify, err := identity.New(identity.Options{Auth: identity.DefaultAuth})
	require.NoError(t, err)
	who := callers.New(callers.Options{Identify: identify})
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/api", http.NoBody)
	r.Header.Set("Authorization", "Bearer x")
	_, err = who.Admit(r, peerOf(t, pki.ClientOptions{CommonName: "a"}))
	refusal := new(apihttp.Error)
	require.ErrorAs(t, err, &refusal)
	require.Equal(t, http.StatusUnauthorized, refusal.Code)
	require.ErrorContains(t, err, "--jwt-key")
}

// anyToken accepts every token, as one for agent "b".
type anyToken struct{}

func (anyToken) Verify(string) (token.Token, error) { return token.Token{Agent: "b"}, nil }

// Callers remember the certificate of a connection, not the agent of a request.
func TestRequestsOfOneConnectionMayMeanDifferentAgents(t *testing.T) {
	identify, err := identity.New(identity.Options{Auth: identity.DefaultAuth})
	require.NoError(t, err)
	who := callers.New(callers.Options{Identify: identify, Tokens: anyToken{}, AllAgents: []string{"argo"}})
	argo, agent := peerOf(t, pki.ClientOptions{CommonName: "argo"}), peerOf(t, pki.ClientOptions{CommonName: "a"})
	const first, second = 0, 1
	connections := []context.Context{callers.WithConnection(t.Context(), nil), callers.WithConnection(t.Context(), nil)}
	for _, c := range []struct {
		connection    int
		peer          identity.Peer
		target, token string
		want          callers.Call
	}{
		{first, argo, "/agents/d/api", "", callers.Call{Caller: "argo", Agent: "d", Path: "/api"}},
		{first, argo, "/agents/e/api", "", callers.Call{Caller: "argo", Agent: "e", Path: "/api"}},
		{first, argo, "/api", "x", callers.Call{Caller: "b", Agent: "b", Path: "/api"}},
		{first, argo, "/agents/d/api", "", callers.Call{Caller: "argo", Agent: "d", Path: "/api"}},
		{second, agent, "/api", "", callers.Call{Caller: "a", Agent: "a", Path: "/api"}},
		{first, argo, "/agents/d/api", "", callers.Call{Caller: "argo", Agent: "d", Path: "/api"}},
	} {
		r := httptest.NewRequestWithContext(connections[c.connection], http.MethodGet, c.target, http.NoBody)
		if c.token != "" {
			r.Header.Set("Authorization", "Bearer "+c.token)
		}
		call, err := who.Admit(r, c.peer)
		require.NoError(t, err)
		require.Equal(t, c.want, call)
	}
	r := httptest.NewRequestWithContext(connections[second], http.MethodGet, "/agents/d/api", http.NoBody)
	_, err = who.Admit(r, agent)
	require.ErrorContains(t, err, `may not reach agent "d"`)
}
