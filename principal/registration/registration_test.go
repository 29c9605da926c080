package registration_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/kube/secretstest"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/logging/logtest"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/enrolltoken"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/argocd"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/principal/clusters"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/principal/clusters/clusterstest"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/principal/registration"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	timeout = 2 * time.Minute
	shared  = "shared-cert"
)

// fixture is a Registrar that runs until the test is over.
type fixture struct {
	*registration.Registrar

	api      *clusterstest.Server
	clusters *clusters.Clusters
	registry *prometheus.Registry
	log      *logtest.Log
}

// start runs a Registrar of a principal, which knows the Secrets of the API server by then.
func start(t *testing.T, api *clusterstest.Server, change ...func(*registration.Options)) *fixture {
	t.Helper()
	f := &fixture{api: api, registry: prometheus.NewRegistry(), log: &logtest.Log{}}
	logger := slog.New(slog.NewTextHandler(f.log, nil))
	f.clusters = clusters.New(api.Client.RESTClient(), secretstest.Namespace, logger)
	options := registration.Options{
		Secrets: api.Client.Secrets(secretstest.Namespace), Reader: api.Client.RESTClient(), Namespace: secretstest.Namespace, Clusters: f.clusters,
		Proxy: "proxy:9090", Modes: []string{"managed"}, Registerer: f.registry, Logger: logger,
	}
	for _, c := range change {
		c(&options)
	}
	f.Registrar = registration.New(options)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	running.Go(func() { f.clusters.Run(ctx) })
	running.Go(func() { f.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	soon, done := context.WithTimeout(t.Context(), timeout)
	defer done()
	require.True(t, f.Wait(soon) && f.clusters.Wait(soon))
	return f
}

func allowing(t *testing.T, labels, annotations []string) func(*registration.Options) {
	t.Helper()
	rules, err := registration.NewRules(labels, annotations)
	require.NoError(t, err)
	return func(o *registration.Options) { o.Rules = rules }
}

func managed(labels ...map[string]string) registration.Declared {
	d := registration.Declared{Mode: "managed"}
	if len(labels) > 0 {
		d.Keys.Labels = labels[0]
	}
	return d
}

func TestKeylessSecretOfAnAgentThatConnects(t *testing.T) {
	f := start(t, clusterstest.New(t))
	require.NoError(t, f.Register(t.Context(), "berlin", managed()))
	require.True(t, f.clusters.Has("berlin"), "at once, and not when a watch brings it")
	require.Equal(t, "managed", f.clusters.Mode("berlin"))

	made := f.api.Get("cluster-berlin")
	require.Equal(t, map[string]string{
		"argocd.argoproj.io/secret-type": "cluster", "argocd-agent.argoproj-labs.io/agent-name": "berlin",
		"argocd-agent.argoproj-labs.io/self-registered-cluster": "true", "argocd-agent.argoproj-labs.io/agent-mode": "managed",
	}, made.Labels)
	require.Equal(t, map[string]string{
		"argocd.argoproj.io/skip-reconcile": "true", "managed-by": "argocd-agent",
		"argocd-agent.argoproj-labs.io/self-registered-keys": `{"mode":"managed"}`,
	}, made.Annotations)
	require.Equal(t, "http://proxy:9090/agents/berlin?agentName=berlin", string(made.Data["server"]))
	require.Equal(t, "berlin", string(made.Data["name"]))
	require.JSONEq(t, `{"tlsClientConfig":{"insecure":false}}`, string(made.Data["config"]))

	require.NoError(t, f.Register(t.Context(), "berlin", managed()))
	require.Equal(t, 1, f.api.Writes(), "what is as it should be is neither read nor written")
}

// Whatever people made stays: also a Secret of another name, and what they add to a principal's.
func TestWhatPeopleMadeIsLeftAlone(t *testing.T) {
	api := clusterstest.New(t)
	api.Put("by-hand", "berlin", "https://berlin")
	api.Put("cluster-paris", "oslo", "https://oslo")
	api.Put("cluster-rome", "", "https://nowhere")
	f := start(t, api, allowing(t, []string{"*"}, nil))
	require.NoError(t, f.Register(t.Context(), "berlin", managed()))
	require.Zero(t, f.api.Writes())
	for _, agent := range []string{"paris", "rome"} {
		err := f.Register(t.Context(), agent, managed())
		require.Equal(t, codes.FailedPrecondition, status.Code(err), "%v", err)
		require.ErrorContains(t, err, "Secret argocd/cluster-"+agent)
	}
	require.Zero(t, f.api.Writes())

}

// What people add to a principal's Secret, change or remove there, wins over what the agent says, until they put it back.
func TestWhatPeopleEditStays(t *testing.T) {
	f := start(t, clusterstest.New(t), allowing(t, []string{"*"}, []string{"*"}))
	says := func(env, tier string) registration.Declared {
		d := managed(map[string]string{"env": env, "tier": tier, "fleet": "agent"})
		d.Keys.Annotations = map[string]string{"note": "agent " + env}
		return d
	}
	require.NoError(t, f.Register(t.Context(), "kyiv", managed(map[string]string{"team": "a", "env": "prod", "tier": "1"})))
	f.edit(t, "kyiv", func(s *corev1.Secret) {
		s.Labels["fleet"], s.Labels["env"] = "person", "test"
		delete(s.Labels, "tier")
		s.Annotations["note"] = "person"
		s.Data["namespaces"] = []byte("default")
	})
	require.NoError(t, f.Register(t.Context(), "kyiv", says("prod", "2")))
	now := f.api.Get("cluster-kyiv")
	require.Equal(t, "person", now.Labels["fleet"], "what a person set wins")
	require.NotContains(t, now.Labels, "team", "what the agent says no more goes")
	require.Equal(t, "test", now.Labels["env"], "what a person changed wins")
	require.NotContains(t, now.Labels, "tier", "what a person removed stays away")
	require.Equal(t, "person", now.Annotations["note"])
	require.Equal(t, "default", string(now.Data["namespaces"]))

	f.edit(t, "kyiv", func(s *corev1.Secret) { s.Labels["env"], s.Labels["tier"] = "prod", "1" })
	require.NoError(t, f.Register(t.Context(), "kyiv", says("dev", "2")))
	now = f.api.Get("cluster-kyiv")
	require.Equal(t, "dev", now.Labels["env"], "and what a person put back follows the agent again")
	require.Equal(t, "2", now.Labels["tier"])

	f.edit(t, "kyiv", func(s *corev1.Secret) { s.Labels["env"] = "test" })
	require.NoError(t, f.Register(t.Context(), "kyiv", managed()))
	require.Equal(t, "test", f.api.Get("cluster-kyiv").Labels["env"], "also when the agent says no more of it")
}

// edit changes the cluster Secret of an agent as a person does, and waits until the principal knows.
func (f *fixture) edit(t *testing.T, agent string, change func(*corev1.Secret)) {
	t.Helper()
	edited := f.api.Get("cluster-" + agent)
	change(edited)
	edited.Annotations["edits"] += "x" // which is how the principal's knowledge of this one is told
	f.api.Set(edited)
	require.Eventually(t, func() bool { return f.clusters.Registered(agent).Annotations["edits"] == edited.Annotations["edits"] }, timeout, time.Millisecond)
}

func TestModeOfAnAgentThatRegistersItself(t *testing.T) {
	api := clusterstest.New(t)
	f := start(t, api)
	err := f.Register(t.Context(), "berlin", registration.Declared{Mode: "autonomous"})
	require.Equal(t, codes.FailedPrecondition, status.Code(err))
	require.ErrorContains(t, err, "--self-registration-modes")
	require.NoError(t, f.Register(t.Context(), "berlin", managed()))
	require.NoError(t, f.Register(t.Context(), "berlin", registration.Declared{Mode: "autonomous"}))
	require.Equal(t, "managed", f.clusters.Mode("berlin"), "what the hub says does not change")

	both := start(t, api, func(o *registration.Options) { o.Modes = []string{"managed", "autonomous"} })
	require.NoError(t, both.Register(t.Context(), "berlin", registration.Declared{Mode: "autonomous"}))
	require.Equal(t, "autonomous", both.clusters.Mode("berlin"))

	// What people say of the mode stands, whichever the agent may choose.
	for _, c := range []struct{ edit, want, then string }{{"managed", "managed", "managed"}, {"", "", ""}, {"autonomous", "autonomous", "managed"}} {
		both.edit(t, "berlin", func(s *corev1.Secret) {
			if s.Labels[argocd.LabelMode] = c.edit; c.edit == "" {
				delete(s.Labels, argocd.LabelMode)
			}
		})
		require.NoError(t, both.Register(t.Context(), "berlin", registration.Declared{Mode: "autonomous"}))
		require.Equal(t, c.want, both.clusters.Mode("berlin"))
		require.NoError(t, both.Register(t.Context(), "berlin", managed()))
		require.Equal(t, c.then, both.clusters.Mode("berlin"))
	}
}

// What a lying agent says of its cluster is left out, and said once; what is allowed counts.
func TestLabelsThatAgentsMayNotSet(t *testing.T) {
	f := start(t, clusterstest.New(t), allowing(t, []string{"team", "example.com/*", "argocd*", "*.io/*", "x*", "managed-by"}, []string{"*"}))
	says := managed(map[string]string{
		"team": "a", "example.com/region": "eu", "argocd.argoproj.io/secret-type": "repository", "argocd-agent.argoproj-labs.io/agent-name": "oslo",
		"argocd-agent.argoproj-labs.io/agent-mode": "autonomous", "app.kubernetes.io/instance": "x", "node.k8s.io/x": "y", "fleet": "prod",
		"xbad value": "a", "xvalue": "not a label value", "x": string(make([]byte, 64)),
	})
	says.Keys.Annotations = map[string]string{
		"note": "hello", "argocd.argoproj.io/skip-reconcile": "false", "managed-by": "me", "kubectl.kubernetes.io/last-applied-configuration": "{}",
		"argocd-agent.argoproj-labs.io/self-registered-keys": `{"labels":["fleet"]}`, "long": string(make([]byte, 1025)),
		"argocd-agent.argoproj-labs.io/deletion-guard-share": "100",
	}
	require.NoError(t, f.Register(t.Context(), "berlin", says))
	made := f.api.Get("cluster-berlin")
	require.Equal(t, map[string]string{
		"argocd.argoproj.io/secret-type": "cluster", "argocd-agent.argoproj-labs.io/agent-name": "berlin",
		"argocd-agent.argoproj-labs.io/self-registered-cluster": "true", "argocd-agent.argoproj-labs.io/agent-mode": "managed",
		"team": "a", "example.com/region": "eu",
	}, made.Labels)
	require.Equal(t, map[string]string{
		"argocd.argoproj.io/skip-reconcile": "true", "managed-by": "argocd-agent", "note": "hello",
		"argocd-agent.argoproj-labs.io/self-registered-keys": `{"mode":"managed","labels":{"example.com/region":"4d0282941aaf2d69","team":"ca978112ca1bbdca"},"annotations":{"note":"2cf24dba5fb0a30e"}}`,
	}, made.Annotations)
	require.NoError(t, f.Register(t.Context(), "berlin", says))
	require.Equal(t, 1, strings.Count(f.log.String(), "Left out labels or annotations"), "once until it says something else")
	require.Contains(t, f.log.String(), "left_out=15")
	require.Contains(t, f.log.String(), "--self-registration-allowed-labels")
}

// What an operator says of an agent's cluster with its enrollment token needs no rule, and wins over the agent.
func TestLabelsOfAnEnrollmentToken(t *testing.T) {
	api := clusterstest.New(t)
	entry := enrolltoken.NewEntry(enrolltoken.New("berlin"), time.Now())
	entry.Labels, entry.Annotations = map[string]string{"env": "prod"}, map[string]string{"owner": "Jo"}
	good, err := entry.Encode()
	require.NoError(t, err)
	entry.Labels = map[string]string{"argocd-agent.argoproj-labs.io/agent-name": "berlin"}
	bad, err := entry.Encode()
	require.NoError(t, err)
	api.Set(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: enrolltoken.SecretName}, Data: map[string][]byte{"berlin": good, "paris": bad, "oslo": []byte("junk")}})
	f := start(t, api, allowing(t, []string{"*"}, nil))
	for _, agent := range []string{"berlin", "paris", "oslo"} {
		require.NoError(t, f.Register(t.Context(), agent, managed(map[string]string{"env": "test", "team": "a"})))
	}
	berlin := api.Get("cluster-berlin")
	require.Equal(t, "prod", berlin.Labels["env"])
	require.Equal(t, "a", berlin.Labels["team"])
	require.Equal(t, "Jo", berlin.Annotations["owner"])
	require.Equal(t, "test", api.Get("cluster-paris").Labels["env"])
	require.Equal(t, "paris", api.Get("cluster-paris").Labels["argocd-agent.argoproj-labs.io/agent-name"])
	require.Equal(t, 2, strings.Count(f.log.String(), "Ignored labels and annotations of an enrollment token"))
}

// Whoever gets certificates for many names cannot fill the hub.
func TestFloodOfNamesIsBounded(t *testing.T) {
	f := start(t, clusterstest.New(t), func(o *registration.Options) { o.Most = 7 })
	var work errgroup.Group
	var made atomic.Int32
	for i := range 50 {
		work.Go(func() error {
			err := f.Register(t.Context(), fmt.Sprint("name-", i), managed())
			if err == nil {
				made.Add(1)
			} else if status.Code(err) != codes.ResourceExhausted {
				return err
			}
			return nil
		})
	}
	require.NoError(t, work.Wait())
	require.EqualValues(t, 7, made.Load())
	err := f.Register(t.Context(), "another", managed())
	require.ErrorContains(t, err, "--max-self-registered-clusters")

	f = start(t, clusterstest.New(t), func(o *registration.Options) { o.Most = 0 })
	began, n := time.Now(), 0
	for ; err == nil || n == 0; n++ {
		err = f.Register(t.Context(), fmt.Sprint("name-", n), managed())
	}
	require.ErrorContains(t, err, "at the same time")
	require.LessOrEqual(t, n, 102+int(20*time.Since(began).Seconds()))
}

// Several principals that an agent comes to at the same time make one Secret, and lose nothing.
func TestSeveralPrincipalsAtOnce(t *testing.T) {
	api := clusterstest.New(t)
	var all []*fixture
	for range 3 {
		all = append(all, start(t, api, allowing(t, []string{"*"}, nil)))
	}
	var work errgroup.Group
	for _, f := range all {
		for i := range 10 {
			work.Go(func() error {
				return f.Register(context.WithoutCancel(t.Context()), fmt.Sprint("name-", i), managed(map[string]string{"team": "a"}))
			})
		}
	}
	require.NoError(t, work.Wait())
	require.Equal(t, 10, api.Writes())
	for i := range 10 {
		require.Equal(t, "a", api.Get(fmt.Sprint("cluster-name-", i)).Labels["team"])
	}
}

// Deleted, it comes back at the next connection.
func TestDeletedSecretComesBack(t *testing.T) {
	f := start(t, clusterstest.New(t))
	require.NoError(t, f.Register(t.Context(), "berlin", managed()))
	f.api.Remove("cluster-berlin")
	require.Eventually(t, func() bool { return !f.clusters.Has("berlin") }, timeout, time.Millisecond)
	require.NoError(t, f.Register(t.Context(), "berlin", managed()))
	require.NotNil(t, f.api.Get("cluster-berlin"))
}
