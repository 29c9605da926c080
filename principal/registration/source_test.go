package registration_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/bubble"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/kube/secretstest"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/certs"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/pki"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/argocd"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/principal/clusters/clusterstest"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/principal/registration"
)

// sharing has the Secrets share the certificate of a Secret.
func sharing(t *testing.T, api *clusterstest.Server) func(*registration.Options) {
	t.Helper()
	who, err := identity.New(identity.Options{Auth: identity.DefaultAuth, Reserved: []string{"argocd"}, Components: identity.Components{"argocd-agent-kubeproxy": {"kube"}}})
	require.NoError(t, err)
	return func(o *registration.Options) {
		o.Source = registration.NewSource(registration.SourceOptions{
			Client: api.Client.RESTClient(), Namespace: secretstest.Namespace, Name: shared, Identify: who,
			Metrics: certs.NewMetrics(o.Registerer), Logger: o.Logger,
		})
	}
}

// certificate returns the data of a Secret with a client certificate.
func certificate(t *testing.T, common, uri string) map[string][]byte {
	t.Helper()
	return issued(t, func(ca *pki.CA) (pki.Pair, error) {
		return ca.IssueClient(pki.ClientOptions{CommonName: common, SPIFFEID: uri})
	})
}

// issued returns the data of a Secret with what a CA issues.
func issued(t *testing.T, issue func(*pki.CA) (pki.Pair, error)) map[string][]byte {
	t.Helper()
	ca, err := pki.NewCA(pki.CAOptions{CommonName: "test"})
	require.NoError(t, err)
	pair, err := issue(ca)
	require.NoError(t, err)
	return map[string][]byte{"tls.crt": pair.Certificate, "tls.key": pair.Key, "ca.crt": ca.PEM().Certificate}
}

// within returns the data of a Secret with a client certificate that is valid from a time on, for a day.
func within(t *testing.T, begin time.Time) map[string][]byte {
	t.Helper()
	return issued(t, func(ca *pki.CA) (pki.Pair, error) {
		return ca.IssueClient(pki.ClientOptions{
			SPIFFEID: "spiffe://argocd-agent/self-registered", Validity: pki.Validity{NotBefore: begin, NotAfter: begin.Add(24 * time.Hour)},
		})
	})
}

func source(data map[string][]byte) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: shared}, Data: data}
}

// A certificate that is rotated, and an address that changes, reach Secrets whose agents are away.
func TestSecretsFollowTheCertificateAndTheAddress(t *testing.T) {
	api := clusterstest.New(t)
	f := start(t, api, sharing(t, api))
	err := f.Register(t.Context(), "berlin", managed())
	require.ErrorContains(t, err, "Secret argocd/shared-cert of --self-registration-client-cert-secret: not found")

	first := certificate(t, "", "spiffe://argocd-agent/self-registered")
	api.Set(source(first))
	require.Eventually(t, func() bool { return f.Register(t.Context(), "berlin", managed()) == nil }, timeout, time.Millisecond)
	holds := func(data map[string][]byte, server string) bool {
		cluster, err := argocd.ReadCluster(api.Get("cluster-berlin"))
		require.NoError(t, err)
		return string(cluster.Access.TLS.Key) == string(data["tls.key"]) && string(cluster.Access.TLS.Certificate) == string(data["tls.crt"]) &&
			string(cluster.Access.TLS.CAData) == string(data["ca.crt"]) && cluster.Server == server && cluster.Access.BearerToken == ""
	}
	const server = "https://proxy:9090/agents/berlin?agentName=berlin"
	require.True(t, holds(first, server))

	second := certificate(t, "", "spiffe://argocd-agent/self-registered")
	api.Set(source(second))
	require.Eventually(t, func() bool { return holds(second, server) }, timeout, time.Millisecond)
	require.True(t, argocd.IsSelfRegistered(api.Get("cluster-berlin")))

	// Of what cannot be used, the last one that could is used on.
	api.Set(source(map[string][]byte{"tls.crt": second["tls.crt"]}))
	require.Eventually(t, func() bool { return strings.Count(f.log.String(), "cannot be used") == 1 }, timeout, time.Millisecond)
	require.NoError(t, f.Register(t.Context(), "paris", managed()))
	require.True(t, holds(second, server))

	// Another principal, with another address.
	api.Set(source(second))
	start(t, api, sharing(t, api), func(o *registration.Options) { o.Proxy = "moved:1" })
	require.Eventually(t, func() bool { return holds(second, "https://moved:1/agents/berlin?agentName=berlin") }, timeout, time.Millisecond)
}

// A certificate that ends while nobody touches it is put into no further Secret, and the log and the metrics say so. One that is to begin does
// so by itself.
func TestSharedCertificateThatEnds(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		api := clusterstest.New(t)
		first := within(t, time.Now())
		api.Set(source(first))
		f := start(t, api, sharing(t, api))
		key := func(agent string) string {
			synctest.Wait()
			cluster, err := argocd.ReadCluster(api.Get("cluster-" + agent))
			require.NoError(t, err)
			return string(cluster.Access.TLS.Key)
		}
		ends := func(at string) {
			t.Helper()
			require.NoError(t, testutil.GatherAndCompare(f.registry, strings.NewReader(
				"# HELP argocd_agent_certificate_not_after_timestamp_seconds When the TLS certificate in use expires, or the last of the trusted CAs.\n"+
					"# TYPE argocd_agent_certificate_not_after_timestamp_seconds gauge\n"+
					`argocd_agent_certificate_not_after_timestamp_seconds{name="self-registration"} `+at+"\n"), "argocd_agent_certificate_not_after_timestamp_seconds"))
		}
		require.NoError(t, f.Register(t.Context(), "berlin", managed()))
		ends("9.467712e+08")

		second := within(t, time.Now().Add(12*time.Hour))
		api.Set(source(second))
		synctest.Wait()
		require.Contains(t, f.log.String(), "the last one that could is used on")
		require.Contains(t, f.log.String(), "its certificate is valid from 2000-01-01T12:00:00Z on")
		require.Equal(t, string(first["tls.key"]), key("berlin"))
		<-time.After(12 * time.Hour)
		require.Equal(t, string(second["tls.key"]), key("berlin"))
		ends("9.468144e+08")
		require.NotContains(t, f.log.String(), "has expired")

		<-time.After(24 * time.Hour)
		synctest.Wait()
		require.Equal(t, 1, strings.Count(f.log.String(), "no cluster registers until the Secret has another"))
		require.Contains(t, f.log.String(), "its certificate has expired on 2000-01-02T12:00:00Z")
		err := f.Register(t.Context(), "paris", managed())
		require.ErrorContains(t, err, "Secret argocd/shared-cert of --self-registration-client-cert-secret: its certificate has expired")
		require.Nil(t, api.Get("cluster-paris"))
		require.Equal(t, string(second["tls.key"]), key("berlin"), "who has registered keeps it")
		require.NoError(t, f.Ready(), "a principal serves those that have registered")

		third := within(t, time.Now())
		api.Set(source(third))
		require.Equal(t, string(third["tls.key"]), key("berlin"))
		require.NoError(t, f.Register(t.Context(), "paris", managed()))
	})
}

// Whose SPIFFE ID it is may change after the certificate was loaded.
func TestSharedCertificateThatBecomesAnAgents(t *testing.T) {
	api := clusterstest.New(t)
	api.Set(source(certificate(t, "", "spiffe://hub.test/self-registered")))
	var table atomic.Pointer[identity.Table]
	table.Store(new(identity.Table))
	who, err := identity.New(identity.Options{Auth: "spiffe:", Table: func() identity.Table { return *table.Load() }})
	require.NoError(t, err)
	f := start(t, api, func(o *registration.Options) {
		o.Source = registration.NewSource(registration.SourceOptions{
			Client: api.Client.RESTClient(), Namespace: secretstest.Namespace, Name: shared, Identify: who,
			Metrics: certs.NewMetrics(o.Registerer), Logger: o.Logger,
		})
	})
	require.NoError(t, f.Register(t.Context(), "berlin", managed()))
	now, err := identity.ParseTable(map[string]string{"oslo": "spiffe://hub.test/self-registered"})
	require.NoError(t, err)
	table.Store(&now)
	require.ErrorContains(t, f.Register(t.Context(), "paris", managed()), "its certificate is agent oslo's by the setting --auth")
	require.Nil(t, api.Get("cluster-paris"))
}

// Whoever reads a cluster Secret has its key: one that is an agent's, or that kubeproxy would not know, is not put there.
func TestCertificatesThatAreNotShared(t *testing.T) {
	for name, c := range map[string]struct {
		data map[string][]byte
		want string
	}{
		"an agent's":          {certificate(t, "oslo", "spiffe://hub.test/self-registered"), "is agent oslo's"},
		"a component's":       {certificate(t, "argocd-agent-kubeproxy", "spiffe://hub.test/x"), "argocd-agent-kubeproxy"},
		"without a SPIFFE ID": {certificate(t, "self-registered", ""), "has no SPIFFE ID"},
		"a server's": {issued(t, func(ca *pki.CA) (pki.Pair, error) {
			return ca.IssueServer(pki.ServerOptions{Names: []string{"argocd-agent-kubeproxy"}})
		}), "is not one of a client"},
		"a CA's": {issued(t, func(ca *pki.CA) (pki.Pair, error) { return ca.PEM(), nil }), "is not one of a client"},
		"without its key": {issued(t, func(ca *pki.CA) (pki.Pair, error) {
			pair, err := ca.IssueClient(pki.ClientOptions{SPIFFEID: "spiffe://hub.test/x"})
			pair.Key = ca.PEM().Key
			return pair, err
		}), "its keys tls.crt and tls.key"},
		"expired": {within(t, time.Now().Add(-25*time.Hour)), "has expired on"},
		"early":   {within(t, time.Now().Add(time.Hour)), "compare the clocks"},
		"without a CA": func() (c struct {
			data map[string][]byte
			want string
		}) {
			c.data, c.want = certificate(t, "", "spiffe://hub.test/x"), "ca.crt"
			delete(c.data, "ca.crt")
			return c
		}(),
	} {
		t.Run(name, func(t *testing.T) {
			api := clusterstest.New(t)
			api.Set(source(c.data))
			f := start(t, api, sharing(t, api))
			require.ErrorContains(t, f.Register(t.Context(), "berlin", managed()), c.want)
			require.Nil(t, api.Get("cluster-berlin"))
		})
	}
}
