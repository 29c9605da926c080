package e2e_test

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/cluster"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/pki"
)

// With --metrics-authorization the API server decides who gets the metrics, by the rights that docs/operations.md has.
func TestMetricsAreForThoseThatTheAPIServerAllows(t *testing.T) {
	t.Parallel()
	name := unique("scraped")
	pair, err := shared.CA.IssueServer(pki.ServerOptions{Addresses: []net.IP{net.IPv4(127, 0, 0, 1)}})
	require.NoError(t, err)
	certificate, err := shared.Host.Write(name+"/tls.crt", pair.Certificate)
	require.NoError(t, err)
	key, err := shared.Host.Write(name+"/tls.key", pair.Key)
	require.NoError(t, err)
	args := []string{"--metrics-authorization=true", "--metrics-tls-cert=" + certificate, "--metrics-tls-key=" + key}

	principal := newPrincipal(t, lab.PrincipalOptions{Args: args})
	s := startSite(t, name, lab.AgentOptions{Args: args, Principal: principal}).connected(t)
	for _, c := range []struct {
		cluster   *lab.Cluster
		user, url string
	}{
		{shared.Hub, lab.PrincipalUser, principal.MetricsURL},
		{s.spoke, lab.AgentUser, s.agent.MetricsURL},
	} {
		m := metrics{t: t, cluster: c.cluster, name: name, url: strings.Replace(c.url, "http://", "https://", 1)}
		m.account("prometheus")
		m.account("stranger")
		m.allow("scraper", name+"-scraper", fmt.Sprintf("{kind: ServiceAccount, name: %s-prometheus, namespace: %s}", name, lab.Namespace))
		status, page := m.scrape(m.token("prometheus"))
		require.Equal(t, http.StatusServiceUnavailable, status, "%s", page)
		require.Contains(t, page, `User "`+c.user+`" cannot create resource "tokenreviews"`)

		m.allow("reviewer", "system:auth-delegator", "{apiGroup: rbac.authorization.k8s.io, kind: User, name: "+c.user+"}")
		require.Eventually(t, func() bool { // the authorizer of the API server watches the bindings
			status, page = m.scrape(m.token("prometheus"))
			return status == http.StatusOK
		}, timeout, 100*time.Millisecond)
		require.Contains(t, page, "argocd_agent_build_info")
		status, page = m.scrape(m.token("stranger"))
		require.Equal(t, http.StatusForbidden, status, "%s", page)
		require.Contains(t, page, "-stranger may not get /metrics: give it a ClusterRole with that nonResourceURL")
		for _, token := range []string{"", "made-up", m.token("prometheus") + "x"} {
			status, page = m.scrape(token)
			require.Equal(t, http.StatusUnauthorized, status, "%s", page)
			require.NotContains(t, page, "argocd_agent_build_info")
		}
	}
}

// metrics are those of a program whose API server decides who gets them. Objects of its cluster have names of their own.
type metrics struct {
	t         *testing.T
	cluster   *lab.Cluster
	name, url string
}

// account creates a service account.
func (m metrics) account(name string) {
	m.t.Helper()
	m.apply("{apiVersion: v1, kind: ServiceAccount, metadata: {name: %s-%s}}", m.name, name)
	m.t.Cleanup(func() { core(m.cluster, "serviceaccounts", lab.Namespace, m.name+"-"+name).delete(m.t) })
}

// allow binds a ClusterRole, which may be that of scrapers, to a subject.
func (m metrics) allow(name, role, subject string) {
	m.t.Helper()
	if role == m.name+"-"+name {
		m.apply("{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: %s}, rules: [{nonResourceURLs: [/metrics], verbs: [get]}]}", role)
		m.t.Cleanup(func() { m.delete("clusterroles", role) })
	}
	m.apply("{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: %s-%s}, "+
		"roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: %q}, subjects: [%s]}", m.name, name, role, subject)
	m.t.Cleanup(func() { m.delete("clusterrolebindings", m.name+"-"+name) })
}

func (m metrics) apply(manifest string, values ...any) {
	m.t.Helper()
	require.NoError(m.t, m.cluster.ApplyYAML(m.t.Context(), fmt.Appendf(nil, manifest, values...), lab.Namespace))
}

func (m metrics) delete(resource, name string) {
	m.t.Helper()
	side{m.cluster, cluster.Selection{Resource: rbac(resource), Name: name}}.delete(m.t)
}

// token returns a new token of a service account.
func (m metrics) token(name string) string {
	m.t.Helper()
	request, err := m.cluster.Kubernetes.CoreV1().ServiceAccounts(lab.Namespace).CreateToken(m.t.Context(), m.name+"-"+name,
		&authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	require.NoError(m.t, err)
	return request.Status.Token
}

// scrape reads the metrics with a token, or without one, on a connection of its own.
func (m metrics) scrape(token string) (status int, page string) {
	m.t.Helper()
	roots := x509.NewCertPool()
	require.True(m.t, roots.AppendCertsFromPEM(shared.CA.PEM().Certificate))
	request, err := http.NewRequestWithContext(m.t.Context(), http.MethodGet, m.url, http.NoBody)
	require.NoError(m.t, err)
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	client := &http.Client{
		Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, DisableKeepAlives: true},
		Timeout:   timeout,
	}
	response, err := client.Do(request)
	require.NoError(m.t, err)
	defer func() { require.NoError(m.t, response.Body.Close()) }()
	data, err := io.ReadAll(response.Body)
	require.NoError(m.t, err)
	return response.StatusCode, string(data)
}
