package callers_test

import (
	"context"
	"crypto/x509"
	"errors"
	"net"
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
	return identity.Peer{Proof: identity.Certified([]*x509.Certificate{certificate.Leaf})}
}

// callersOf returns the table with these entries.
func callersOf(t *testing.T, entries ...string) identity.Callers {
	t.Helper()
	table, err := identity.ParseCallers(entries)
	require.NoError(t, err)
	return table
}

// tableOf returns the default table, with more entries.
func tableOf(t *testing.T, more ...string) identity.Callers {
	t.Helper()
	return callersOf(t, append(identity.DefaultCallers(), more...)...)
}

// Meshes vouch for the URI, and let anybody choose a common name. And what names an agent to the principal is no caller.
func TestCallersAreKnownByTheirURIAlone(t *testing.T) {
	const server = "spiffe://example.org/ns/argocd/sa/argocd-server"
	who := callers.New(callers.Options{Table: callersOf(t, "spiffe://example.org/caller/{agent}={agent}", server+"=*")})
	admit := func(target string, o pki.ClientOptions) (callers.Call, error) {
		return who.Admit(httptest.NewRequestWithContext(t.Context(), http.MethodGet, target, http.NoBody), peerOf(t, o))
	}
	call, err := admit("/api", pki.ClientOptions{CommonName: "b", SPIFFEID: "spiffe://example.org/caller/a"})
	require.NoError(t, err)
	require.Equal(t, callers.Call{Caller: "a", Agent: "a", Path: "/api"}, call)
	call, err = admit("/agents/d/api", pki.ClientOptions{SPIFFEID: server})
	require.NoError(t, err)
	require.Equal(t, callers.Call{Caller: server, Agent: "d", Path: "/api"}, call)
	for name, o := range map[string]pki.ClientOptions{
		"a common name":                   {CommonName: "a"},
		"one of those for all agents":     {CommonName: "argo"},
		"beside the URI of another":       {CommonName: "argo", SPIFFEID: "spiffe://example.org/ns/evil/sa/anything"},
		"of the trust domain of nobody":   {Caller: "a"},
		"a URI that begins as a caller's": {SPIFFEID: "spiffe://example.org/caller/a/b"},
	} {
		_, err := admit("/agents/a/api", o)
		require.Error(t, err, name)
	}
}

func TestTokenWithoutKeysIsUnauthorized(t *testing.T) {
	who := callers.New(callers.Options{Table: tableOf(t)})
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/api", http.NoBody)
	r.Header.Set("Authorization", "Bearer x")
	_, err := who.Admit(r, peerOf(t, pki.ClientOptions{Caller: "a"}))
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
	const all = "spiffe://example.org/argo"
	who := callers.New(callers.Options{Tokens: anyToken{}, Table: tableOf(t, all+"=*")})
	argo, agent := peerOf(t, pki.ClientOptions{SPIFFEID: all}), peerOf(t, pki.ClientOptions{Caller: "a"})
	const first, second = 0, 1
	conn, other := net.Pipe()
	t.Cleanup(func() { require.NoError(t, errors.Join(conn.Close(), other.Close())) })
	connections := []context.Context{callers.WithConnection(t.Context(), conn), callers.WithConnection(t.Context(), conn)}
	for _, c := range []struct {
		connection    int
		peer          identity.Peer
		target, token string
		want          callers.Call
	}{
		{first, argo, "/agents/d/api", "", callers.Call{Caller: all, Agent: "d", Path: "/api"}},
		{first, argo, "/agents/e/api", "", callers.Call{Caller: all, Agent: "e", Path: "/api"}},
		{first, argo, "/api", "x", callers.Call{Caller: "b", Agent: "b", Path: "/api"}},
		{first, argo, "/agents/d/api", "", callers.Call{Caller: all, Agent: "d", Path: "/api"}},
		{second, agent, "/api", "", callers.Call{Caller: "a", Agent: "a", Path: "/api"}},
		{first, argo, "/agents/d/api", "", callers.Call{Caller: all, Agent: "d", Path: "/api"}},
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
	_, err := who.Admit(r, agent)
	require.ErrorContains(t, err, `may not reach agent "d"`)
}
