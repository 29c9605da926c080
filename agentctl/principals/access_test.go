package principals_test

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/principals"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/pki"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/presence"
)

// guarded is a principal whose metrics ask for a client certificate and a token.
func guarded(t *testing.T) (address string, access principals.Access) {
	t.Helper()
	ca, err := pki.NewCA(pki.CAOptions{CommonName: "metrics"})
	require.NoError(t, err)
	own, err := ca.IssueServer(pki.ServerOptions{Names: []string{"metrics.hub"}, Addresses: []net.IP{net.IPv4(127, 0, 0, 1)}})
	require.NoError(t, err)
	pair, err := own.TLS()
	require.NoError(t, err)
	clients := x509.NewCertPool()
	clients.AddCert(ca.Certificate())
	handler := presence.Handler(func() (presence.Report, error) {
		return presence.Report{Agents: []presence.Agent{{Name: "berlin", Connected: true}}}, nil
	})
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer let me in" {
			http.Error(w, "no", http.StatusUnauthorized)
			return
		}
		handler.ServeHTTP(w, r)
	}))
	server.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: clients, MinVersion: tls.VersionTLS12}
	server.StartTLS()
	t.Cleanup(server.Close)
	client, err := ca.IssueClient(pki.ClientOptions{CommonName: "operator"})
	require.NoError(t, err)
	folder := t.TempDir()
	write := func(name string, text []byte) string {
		path := filepath.Join(folder, name)
		require.NoError(t, os.WriteFile(path, text, 0o600))
		return path
	}
	return server.URL, principals.Access{
		Addresses: []string{server.URL}, CA: write("ca.crt", ca.PEM().Certificate), Cert: write("tls.crt", client.Certificate), Key: write("tls.key", client.Key),
		TokenFile: write("token", []byte("let me in\n")),
	}
}

func TestMetricsThatAskForTLSAndATokenAreAsked(t *testing.T) {
	t.Parallel()
	_, access := guarded(t)
	for name, c := range map[string]struct {
		change func(*principals.Access)
		says   string
	}{
		"as it should be":        {func(*principals.Access) {}, ""},
		"by another name":        {func(a *principals.Access) { a.ServerName = "metrics.hub" }, ""},
		"without a CA":           {func(a *principals.Access) { a.CA = "" }, "--principal-metrics-ca-path"},
		"by a name it has not":   {func(a *principals.Access) { a.ServerName = "elsewhere" }, "--principal-metrics-server-name"},
		"without a token":        {func(a *principals.Access) { a.TokenFile = "" }, "--principal-metrics-token-file"},
		"without a certificate":  {func(a *principals.Access) { a.Cert, a.Key = "", "" }, "certificate required"},
		"with a missing file":    {func(a *principals.Access) { a.TokenFile = "nowhere" }, "nowhere"},
		"with a CA that is none": {func(a *principals.Access) { a.CA = a.TokenFile }, "has no certificate"},
	} {
		asked := access
		c.change(&asked)
		require.NoError(t, asked.Check(), name)
		all := principals.Ask(t.Context(), nil, asked)
		if c.says == "" {
			require.NoError(t, all.Unknown, name)
			require.Equal(t, principals.Connected, all.Of("berlin").State, name)
			continue
		}
		require.ErrorContains(t, all.Unknown, c.says, name)
		require.NotContains(t, all.Unknown.Error(), "let me in", name)
	}
}

func TestTokenGoesOverTLSOnly(t *testing.T) {
	t.Parallel()
	plain := []string{"http://10.0.0.1:8000"}
	require.ErrorContains(t, principals.Access{Addresses: plain, TokenFile: "token"}.Check(), "https://")
	require.ErrorContains(t, principals.Access{Cert: "tls.crt"}.Check(), "both or neither")
	require.ErrorContains(t, principals.Access{ServerName: "metrics"}.Check(), "for TLS")
	require.NoError(t, principals.Access{Addresses: plain}.Check())
}
