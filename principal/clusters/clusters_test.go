package clusters_test

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/kube/secretstest"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/logging/logtest"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/directory"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/directory/directorytest"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/principal/clusters"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/principal/clusters/clusterstest"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/principal/relay/relaytest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// timeout is how long a test waits for what must happen.
const timeout = 2 * time.Minute

// start has a listener follow an API server's Secrets until the test is over.
func start(t *testing.T, s *clusterstest.Server, listener clusters.Listener) (*clusters.Clusters, *logtest.Log) {
	t.Helper()
	log := &logtest.Log{}
	c := clusters.New(s.Client.RESTClient(), secretstest.Namespace, slog.New(slog.NewTextHandler(log, nil)))
	c.Subscribe(listener)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	running.Go(func() { c.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	return c, log
}

// recordingListener keeps the notifications that it gets.
type recordingListener struct{ events chan string }

func (l recordingListener) SetCluster(agent, server string) { l.events <- agent + " " + server }

func (l recordingListener) RemoveCluster(agent string) { l.events <- agent + " gone" }

// expectEvents fails unless these, in any order, are the next notifications.
func (l recordingListener) expectEvents(t *testing.T, want ...string) {
	t.Helper()
	var got []string
	late := time.After(timeout)
	for range want {
		select {
		case what := <-l.events:
			got = append(got, what)
		case <-late:
			require.FailNow(t, "no more notifications", "%q of %q", got, want)
		}
	}
	require.ElementsMatch(t, want, got)
}

func TestClusterSecrets(t *testing.T) {
	s, l := clusterstest.New(t), recordingListener{make(chan string, 100)}
	s.Put("berlin", "berlin", "https://berlin")
	s.Put("password", "", "https://nowhere")
	c, log := start(t, s, l)
	l.expectEvents(t, "berlin https://berlin")
	require.Eventually(t, func() bool { return c.Ready() == nil }, timeout, time.Millisecond)

	s.Put("password", "", "https://elsewhere")
	s.Put("paris", "paris", "https://paris")
	l.expectEvents(t, "paris https://paris")
	s.Put("berlin", "berlin", "https://moved")
	l.expectEvents(t, "berlin https://moved")
	s.Put("berlin", "vienna", "https://moved")
	l.expectEvents(t, "berlin gone", "vienna https://moved")
	s.Put("berlin", "", "https://moved")
	l.expectEvents(t, "vienna gone")
	s.Remove("paris")
	l.expectEvents(t, "paris gone")
	require.Empty(t, log.String())
	require.Empty(t, l.events, "no notification of other Secrets")
}

// A cluster that Argo CD calls like an agent is the agent's, or keeps the agent out.
func TestClustersThatAreNotTheAgents(t *testing.T) {
	s, l := clusterstest.New(t), recordingListener{make(chan string, 100)}
	s.PutOther("pushed", "berlin", "")
	s.PutOther("paris", "paris", "paris")
	s.PutOther("swapped", "rome", "vienna")
	c, log := start(t, s, l)
	require.Eventually(t, func() bool { return c.Ready() == nil }, timeout, time.Millisecond)
	for agent, secret := range map[string]string{"berlin": "argocd/pushed", "rome": "argocd/swapped", "paris": "", "vienna": "", "": ""} {
		require.Equal(t, secret, c.Other(agent), agent)
	}
	require.Empty(t, c.Server("berlin"))
	require.Empty(t, log.String(), "clusters of the hub's own are none of the principal's business")
	s.PutOther("pushed", "berlin", "berlin")
	require.Eventually(t, func() bool { return c.Other("berlin") == "" }, timeout, time.Millisecond)
}

// Of several Secrets for one agent the first by name is used, whichever was created first, and the log says so.
func TestSeveralClusterSecretsOfOneAgent(t *testing.T) {
	s, l := clusterstest.New(t), recordingListener{make(chan string, 100)}
	c, log := start(t, s, l)
	s.Put("two", "berlin", "https://two")
	l.expectEvents(t, "berlin https://two")
	s.Put("one", "berlin", "https://one")
	l.expectEvents(t, "berlin https://one")
	require.Equal(t, "https://one", c.Server("berlin"))
	require.Contains(t, log.String(), "Several cluster Secrets name the same agent")
	require.Contains(t, log.String(), "agent=berlin using=one ignored=two")
	s.Put("two", "berlin", "https://other")
	l.expectEvents(t, "berlin https://one")
	s.Remove("one")
	l.expectEvents(t, "berlin https://other")
	s.Remove("two")
	l.expectEvents(t, "berlin gone")
	require.Empty(t, c.Server("berlin"))
}

// An agent whose cluster Secret is broken still has one: it is remembered while it is away, and the log says what is wrong.
func TestAgentWithBrokenClusterSecretHasOne(t *testing.T) {
	s, l := clusterstest.New(t), recordingListener{make(chan string, 100)}
	c, log := start(t, s, l)
	s.Put("berlin", "berlin", "")
	l.expectEvents(t, "berlin ")
	require.True(t, c.Has("berlin"))
	require.False(t, c.Has("paris"))
	s.Put("berlin", "berlin", "/")
	l.expectEvents(t, "berlin ")
	require.Equal(t, 1, strings.Count(log.String(), "Cluster Secret has no server"))
	require.Contains(t, log.String(), "secret=argocd/berlin agent=berlin key=server")
	s.Put("berlin", "berlin", "\xff")
	l.expectEvents(t, "berlin gone")
	require.True(t, c.Has("berlin"))
	s.Put("berlin", "berlin", "https://berlin")
	l.expectEvents(t, "berlin https://berlin")
	s.Remove("berlin")
	l.expectEvents(t, "berlin gone")
	require.False(t, c.Has("berlin"))
}

// What changes while the hub's API server cannot be reached is notified afterwards.
func TestClusterSecretChangesDuringOutage(t *testing.T) {
	s, l := clusterstest.New(t), recordingListener{make(chan string, 100)}
	s.Put("berlin", "berlin", "https://berlin")
	s.Put("paris", "paris", "https://paris")
	s.Put("vienna", "vienna", "https://vienna")
	start(t, s, l)
	l.expectEvents(t, "berlin https://berlin", "paris https://paris", "vienna https://vienna")
	s.Interrupt(func() {
		s.Remove("berlin")
		s.Put("paris", "paris", "https://moved")
		s.Put("rome", "rome", "https://rome")
	})
	l.expectEvents(t, "berlin gone", "paris https://moved", "rome https://rome")
	require.Empty(t, l.events, "no notification of what did not change")
}

// Until the Secrets are known, Ready says why they are not.
func TestNotReadyWhileSecretsAreForbidden(t *testing.T) {
	s, l := clusterstest.New(t), recordingListener{make(chan string, 100)}
	s.Deny(true)
	s.Put("berlin", "berlin", "https://berlin")
	c, _ := start(t, s, l)
	require.ErrorContains(t, c.Ready(), "cluster Secrets on the hub: ")
	require.Eventually(t, func() bool { return strings.Contains(c.Ready().Error(), "secrets is forbidden") }, timeout, time.Millisecond)
	s.Deny(false)
	l.expectEvents(t, "berlin https://berlin")
	require.Eventually(t, func() bool { return c.Ready() == nil }, timeout, time.Millisecond)
}

// A Secret that is not UTF-8 does not keep the hub's components from getting the others, and the log names it.
func TestClusterSecretThatIsNotUTF8IsIgnored(t *testing.T) {
	w, s := relaytest.Open(t), clusterstest.New(t)
	s.Put("bad", "bad", "https://\xff")
	s.Put("good", "good", "https://good")
	s.Put("good-too", "good", "\xc3")
	s.Put("no-label", "Not.A_Label", "https://none")
	_, log := start(t, s, w.Directory)
	known := directory.New(w.Hub, nil, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	running.Go(func() { known.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	until := func(is func() bool) { t.Helper(); directorytest.Until(t, known, timeout, is) }
	until(func() bool { a, ok := known.Server("https://good"); return ok && a.Name == "good" })
	s.Put("last", "last", "https://last")
	until(func() bool { _, ok := known.Server("https://last"); return ok })
	require.NoError(t, known.Ready())
	for _, name := range []string{"bad", "Not.A_Label"} {
		_, ok := known.Agent(name)
		require.False(t, ok, name)
	}
	require.Contains(t, log.String(), `secret=argocd/bad reason="key server: it is no UTF-8 text: write the address of the agent's cluster there"`)
	require.Contains(t, log.String(), `secret=argocd/good-too`)
	require.Contains(t, log.String(), `secret=argocd/no-label reason="label argocd-agent.argoproj-labs.io/agent-name: agent name`)

	s.Put("bad", "bad", "https://mended")
	until(func() bool { _, ok := known.Server("https://mended"); return ok })
	s.Put("bad", "bad", "\xff")
	until(func() bool { _, ok := known.Agent("bad"); return !ok })
	require.Equal(t, 2, strings.Count(log.String(), "secret=argocd/bad "))
}
