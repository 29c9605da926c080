package e2e_test

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/pki"
)

// caller is a client of a kubeproxy with a SPIFFE ID.
type caller struct {
	client *http.Client
	proxy  *lab.Proxy
}

func newCaller(t *testing.T, proxy *lab.Proxy, spiffeID string) caller {
	t.Helper()
	pair, err := shared.CA.IssueClient(pki.ClientOptions{SPIFFEID: spiffeID})
	require.NoError(t, err)
	certificate, err := pair.TLS()
	require.NoError(t, err)
	pool := x509.NewCertPool()
	pool.AddCert(shared.CA.Certificate())
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{
		Certificates: []tls.Certificate{certificate}, RootCAs: pool, MinVersion: tls.VersionTLS13,
	}}}
	t.Cleanup(client.CloseIdleConnections)
	return caller{client, proxy}
}

// asks gets a path, with a bearer token if that is not empty.
func (c caller) asks(t *testing.T, path, token string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+c.proxy.Address+path, http.NoBody)
	require.NoError(t, err)
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := c.client.Do(r)
	require.NoError(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return response.StatusCode, string(body)
}

// A token of argocd-agentctl takes its holder to one agent, as long as the key that signed it is known.
func TestTokensOfAgentctlAreTakenByKubeproxy(t *testing.T) {
	t.Parallel()
	a := newAdmin(t)
	a.fails(t, "jwt issue a", "argocd-agentctl jwt create-key")
	a.does(t, "jwt create-key --key-algorithm ecdsa-p256")
	keys, err := shared.Host.Write("jwt/"+a.hub+"/jwt.key", a.secret(t, "argocd-agent-jwt").Data["jwt.key"])
	require.NoError(t, err)
	kubeproxy := newKubeproxy(t, lab.ProxyOptions{Args: []string{"--jwt-key=" + keys}})

	argo := newCaller(t, kubeproxy, identity.Caller{TrustDomain: identity.CallerTrustDomain}.URI().String())
	token := strings.TrimSpace(a.does(t, "jwt issue a --duration 1h").output)
	status, body := argo.asks(t, "/version", token)
	require.Equal(t, http.StatusOK, status, body)
	require.Contains(t, body, "gitVersion")
	status, body = argo.asks(t, "/agents/b/version", token)
	require.Equal(t, http.StatusForbidden, status, body)

	a.does(t, "jwt create-key --upsert --key-algorithm ecdsa-p256")
	other := strings.TrimSpace(a.does(t, "jwt issue a").output)
	status, body = argo.asks(t, "/version", other)
	require.Equal(t, http.StatusUnauthorized, status, body)
	require.Contains(t, body, "not signed by a key that is known here")
}
