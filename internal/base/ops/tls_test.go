package ops_test

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/ops"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/pki"
)

// Metrics are encrypted, and for those with a certificate only, where that is wanted; health is for probes.
func TestMetricsOverTLSForClientsWithCertificates(t *testing.T) {
	ca, err := pki.NewCA(pki.CAOptions{CommonName: "test"})
	require.NoError(t, err)
	pair, err := ca.IssueServer(pki.ServerOptions{CommonName: "metrics", Addresses: []net.IP{net.IPv4(127, 0, 0, 1)}})
	require.NoError(t, err)
	client, err := ca.IssueClient(pki.ClientOptions{CommonName: "prometheus"})
	require.NoError(t, err)
	dir := t.TempDir()
	write := func(name string, data []byte) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, data, 0o600))
		return path
	}
	options := everything()
	options.TLS = ops.TLSFiles{
		Cert: write("tls.crt", pair.Certificate), Key: write("tls.key", pair.Key), ClientCA: write("ca.crt", ca.PEM().Certificate),
	}
	options.Filter = func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") == "" {
				http.Error(w, "no token", http.StatusUnauthorized)
				return
			}
			next.ServeHTTP(w, r)
		})
	}
	server := running(t, options)
	status, _ := get(t, server.HealthAddress(), "/healthz")
	require.Equal(t, http.StatusOK, status)
	status, _ = get(t, server.MetricsAddress(), "/metrics")
	require.Equal(t, http.StatusBadRequest, status, "that is not HTTPS")

	roots := x509.NewCertPool()
	require.True(t, roots.AppendCertsFromPEM(ca.PEM().Certificate))
	scrape := func(certificates []tls.Certificate, token string) (int, error) {
		transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, Certificates: certificates}}
		defer transport.CloseIdleConnections()
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+server.MetricsAddress()+"/metrics", http.NoBody)
		require.NoError(t, err)
		request.Header.Set("Authorization", token)
		response, err := (&http.Client{Transport: transport}).Do(request)
		if err != nil {
			return 0, err
		}
		return response.StatusCode, response.Body.Close()
	}
	_, err = scrape(nil, "Bearer x")
	require.ErrorContains(t, err, "certificate required")
	mine, err := client.TLS()
	require.NoError(t, err)
	status, err = scrape([]tls.Certificate{mine}, "")
	require.NoError(t, err)
	require.Equal(t, http.StatusUnauthorized, status)
	status, err = scrape([]tls.Certificate{mine}, "Bearer x")
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, status)
}
