package admission_test

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	typed "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/logging/logtest"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/blocklist"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/identitytest"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/pki"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/principal/admission"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	namespace = "argocd"
	timeout   = 2 * time.Minute
)

// apiServer has the ConfigMap of the blocklist and nothing else.
type apiServer struct {
	first   *corev1.ConfigMap // nil if there is none
	changes chan metav1.WatchEvent
}

// configMap returns the blocklist with these keys.
func configMap(revision string, keys ...string) *corev1.ConfigMap {
	m := &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: blocklist.ConfigMap, UID: "1", ResourceVersion: revision},
		Data:       make(map[string]string),
	}
	for _, key := range keys {
		m.Data[key] = ""
	}
	return m
}

func event(kind watch.EventType, object *corev1.ConfigMap) metav1.WatchEvent {
	return metav1.WatchEvent{Type: string(kind), Object: runtime.RawExtension{Object: object}}
}

// send has the watch bring a change.
func (s *apiServer) send(t *testing.T, kind watch.EventType, object *corev1.ConfigMap) {
	t.Helper()
	select {
	case s.changes <- event(kind, object):
	case <-time.After(timeout):
		require.FailNow(t, "nobody watches")
	}
}

// ServeHTTP implements http.Handler.
func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.FormValue("fieldSelector") != "metadata.name="+blocklist.ConfigMap {
		http.Error(w, "no such right", http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	answer := json.NewEncoder(w)
	if r.FormValue("watch") == "" {
		list := &corev1.ConfigMapList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMapList"}, ListMeta: metav1.ListMeta{ResourceVersion: "1"}}
		if s.first != nil {
			list.Items = append(list.Items, *s.first)
		}
		_ = answer.Encode(list)
		return
	}
	bring := func(event metav1.WatchEvent) {
		_ = answer.Encode(event)
		_ = http.NewResponseController(w).Flush()
	}
	if r.FormValue("sendInitialEvents") != "" {
		if s.first != nil {
			bring(event(watch.Added, s.first))
		}
		mark := configMap("1")
		mark.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
		bring(event(watch.Bookmark, mark))
	}
	_ = http.NewResponseController(w).Flush()
	for {
		select {
		case <-r.Context().Done():
			return
		case event := <-s.changes:
			bring(event)
		}
	}
}

// fixture is an admission that runs until the test is over.
type fixture struct {
	*admission.Admission

	api   *apiServer
	trust *identitytest.Trust
	log   *logtest.Log
	told  chan []string // to Options.Blocked
}

// component is the name of one of the hub.
const component = "argocd-agent-kubeproxy"

func newFixture(t *testing.T, first *corev1.ConfigMap, hasCluster ...func(string) bool) *fixture {
	t.Helper()
	f := &fixture{
		api: &apiServer{first: first, changes: make(chan metav1.WatchEvent)}, trust: &identitytest.Trust{},
		log: &logtest.Log{}, told: make(chan []string, 100),
	}
	server := httptest.NewServer(f.api)
	transport := &http.Transport{}
	client, err := typed.NewForConfigAndClient(
		&rest.Config{Host: server.URL, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: "application/json"}},
		&http.Client{Transport: transport})
	require.NoError(t, err)
	identify, err := identity.New(identity.Options{Auth: identity.DefaultAuth, Components: identity.Components{component: {"kube"}}})
	require.NoError(t, err)
	options := admission.Options{
		Client: client.RESTClient(), Namespace: namespace, Trust: f.trust, Identify: identify,
		Blocked: func(keys []string) { f.told <- keys }, Logger: slog.New(slog.NewTextHandler(f.log, nil)),
	}
	for _, has := range hasCluster {
		options.HasCluster = has
	}
	f.Admission = admission.New(options)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	running.Go(func() { f.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
		server.Close()
		transport.CloseIdleConnections()
	})
	soon, end := context.WithTimeout(t.Context(), timeout)
	defer end()
	require.True(t, f.Wait(soon))
	return f
}

// becomes waits until the certificate is refused with that text, or is not if the text is empty.
func (f *fixture) becomes(t *testing.T, x *x509.Certificate, text string) {
	t.Helper()
	late := time.After(timeout)
	for {
		changed := f.Changed()
		err := f.Verify(identity.Peer{Proof: identity.Certified([]*x509.Certificate{x})})
		if err == nil && text == "" {
			return
		}
		if err != nil && text != "" {
			require.ErrorContains(t, err, text)
			return
		}
		select {
		case <-changed:
		case <-late:
			require.FailNow(t, "it does not become so", "wanted %q, got %v", text, err)
		}
	}
}

func certificate(t *testing.T, name string) *x509.Certificate {
	t.Helper()
	ca, err := pki.NewCA(pki.CAOptions{CommonName: "test"})
	require.NoError(t, err)
	pair, err := ca.IssueClient(pki.ClientOptions{CommonName: name})
	require.NoError(t, err)
	own, err := pair.TLS()
	require.NoError(t, err)
	return own.Leaf
}

func TestBlockAndUnblockWhileItRuns(t *testing.T) {
	f := newFixture(t, nil)
	berlin, paris := certificate(t, "berlin"), certificate(t, "paris")
	f.becomes(t, berlin, "")
	f.api.send(t, watch.Added, configMap("2", "agent.berlin"))
	f.becomes(t, berlin, "agent berlin is blocked")
	require.Equal(t, []string{"agent.berlin"}, <-f.told)
	f.becomes(t, paris, "")
	f.api.send(t, watch.Modified, configMap("3", blocklist.Certificate(paris)))
	f.becomes(t, paris, "fingerprint")
	f.becomes(t, berlin, "")
	f.api.send(t, watch.Deleted, configMap("4"))
	f.becomes(t, paris, "")
	require.Contains(t, f.log.String(), "nobody is blocked")
}

// Who has no certificate yet is refused by its name alone.
func TestAgentsAreRefusedBeforeTheyHaveACertificate(t *testing.T) {
	f := newFixture(t, configMap("1", "agent.berlin"), func(agent string) bool { return agent != "rome" })
	f.becomes(t, certificate(t, "berlin"), "is blocked")
	require.ErrorContains(t, f.Refuses("berlin"), "agent berlin is blocked")
	require.ErrorContains(t, f.Refuses("rome"), "argocd-agentctl agent create rome")
	require.NoError(t, f.Refuses("paris"))
}

func TestBlockedFromTheStart(t *testing.T) {
	f := newFixture(t, configMap("1", "agent.berlin"))
	f.becomes(t, certificate(t, "berlin"), "is blocked")
	f.becomes(t, certificate(t, "paris"), "")
	require.NoError(t, f.Ready())
}

// Whoever writes nonsense has not unblocked anybody, and has not blocked all others either.
func TestInvalidBlocklistKeepsTheLastOne(t *testing.T) {
	f := newFixture(t, configMap("1", "agent.berlin"))
	f.api.send(t, watch.Modified, configMap("2", "agent.Berlin", "agent.rome"))
	f.becomes(t, certificate(t, "rome"), "is blocked")
	f.becomes(t, certificate(t, "berlin"), "is blocked")
	f.becomes(t, certificate(t, "paris"), "")
	require.Contains(t, f.log.String(), "agent.Berlin")
	f.api.send(t, watch.Modified, configMap("3", "agent.rome"))
	f.becomes(t, certificate(t, "berlin"), "")
	f.api.send(t, watch.Deleted, configMap("4"))
	f.api.send(t, watch.Added, configMap("5", "nonsense"))
	f.becomes(t, certificate(t, "rome"), "")
}

func TestInvalidBlocklistAtTheStartAdmitsNobody(t *testing.T) {
	f := newFixture(t, configMap("1", "nonsense"))
	f.becomes(t, certificate(t, "paris"), "nonsense")
	require.ErrorContains(t, f.Refuses("paris"), "nonsense")
	require.ErrorContains(t, f.Ready(), "argocd/argocd-agent-tls-blocklist")
	f.api.send(t, watch.Modified, configMap("2", "more-nonsense"))
	f.api.send(t, watch.Modified, configMap("3", "agent.berlin"))
	f.becomes(t, certificate(t, "paris"), "")
	f.becomes(t, certificate(t, "berlin"), "is blocked")
	require.NoError(t, f.Ready())
}

func TestTrustThatIsWithdrawnCountsToo(t *testing.T) {
	f := newFixture(t, nil)
	berlin := certificate(t, "berlin")
	f.becomes(t, berlin, "")
	f.trust.Change(errors.New("unknown CA"))
	f.becomes(t, berlin, "unknown CA")
	f.trust.Change(nil)
	f.becomes(t, berlin, "")
}

// Whoever deletes an agent's cluster Secret shuts it out, if that is wanted. The hub's components have none.
func TestAgentsWithoutAClusterSecretAreRefused(t *testing.T) {
	var gone atomic.Bool
	f := newFixture(t, nil, func(agent string) bool { return agent == "berlin" && !gone.Load() })
	berlin := certificate(t, "berlin")
	f.becomes(t, berlin, "")
	f.becomes(t, certificate(t, "paris"), "argocd-agentctl agent create paris")
	f.becomes(t, certificate(t, component), "")
	changed := f.Changed()
	gone.Store(true)
	f.RemoveCluster("berlin")
	<-changed
	f.becomes(t, berlin, "the hub has no cluster Secret of agent berlin")
}
