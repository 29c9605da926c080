package principals_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/principals"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/presence"
)

// principal returns the address of a principal that reports these agents.
func principal(t *testing.T, agents ...presence.Agent) string {
	t.Helper()
	mux := http.NewServeMux()
	mux.Handle(presence.Path, presence.Handler(func() (presence.Report, error) { return presence.Report{Agents: agents}, nil }))
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server.URL
}

func TestAgentIsUnknownUnlessAllPrincipalsAnswer(t *testing.T) {
	t.Parallel()
	since := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	one := principal(t, presence.Agent{Name: "berlin", Connected: true, Since: &since}, presence.Agent{Name: "tokyo", Since: &since})
	two := principal(t, presence.Agent{Name: "berlin"}, presence.Agent{Name: "osaka"})
	connected, away := principals.Connection{State: principals.Connected, Since: &since}, principals.Connection{State: principals.Away, Since: &since}
	unknown := principals.Connection{State: principals.Unknown}

	all := principals.Ask(t.Context(), nil, principals.Access{Addresses: []string{one, two + "/"}})
	require.NoError(t, all.Unknown)
	require.Equal(t, connected, all.Of("berlin"))
	require.Equal(t, away, all.Of("tokyo"))
	require.Equal(t, principals.Connection{State: principals.Away}, all.Of("osaka"))
	require.Equal(t, principals.Connection{State: principals.Away}, all.Of("paris"), "no principal has heard of it")

	closed := httptest.NewServer(http.NotFoundHandler())
	closed.Close()
	stranger := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(stranger.Close)
	liar := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>")) }))
	t.Cleanup(liar.Close)
	for _, address := range []string{closed.URL, stranger.URL, liar.URL} {
		some := principals.Ask(t.Context(), nil, principals.Access{Addresses: []string{one, address}})
		require.Error(t, some.Unknown)
		require.Equal(t, connected, some.Of("berlin"), "it is, whatever others would say")
		require.Equal(t, unknown, some.Of("tokyo"), "it may be connected to the other one")
	}
}

// What an agent says of itself reaches an operator's terminal.
func TestWhatAnAgentSaysOfItselfIsPrintable(t *testing.T) {
	t.Parallel()
	for said, shown := range map[string]string{
		"v1.2.3-dirty":             "v1.2.3-dirty",
		"":                         "",
		"\x1b[2Jall is well":       `"\x1b[2Jall is well"`,
		"v1\nberlin connected":     `"v1\nberlin connected"`,
		"\u202e1v":                 `"\u202e1v"`,
		strings.Repeat("x", 1<<20): strings.Repeat("x", 64),
	} {
		address := principal(t, presence.Agent{Name: "berlin", Connected: true, Build: said, Session: &presence.Session{Kubernetes: said, ArgoCD: said}})
		about := principals.Ask(t.Context(), nil, principals.Access{Addresses: []string{address}}).Of("berlin")
		require.Equal(t, []string{shown, shown, shown}, []string{about.Build, about.Session.Kubernetes, about.Session.ArgoCD})
	}
}
