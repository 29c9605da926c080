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

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/logging/logtest"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/directory"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/directory/directorytest"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/principal/clusters"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/principal/relay/relaytest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// timeout is how long a test waits for what must happen.
const timeout = 20 * time.Second

// follow has a listener told of an API server's Secrets, until the test is over.
func follow(t *testing.T, s *apiServer, listener clusters.Listener) (*clusters.Clusters, *logtest.Log) {
	t.Helper()
	log := &logtest.Log{}
	c := clusters.New(s.client, namespace, slog.New(slog.NewTextHandler(log, nil)))
	c.Subscribe(listener)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	running.Go(func() { c.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	return c, log
}

// listener notes what it is told.
type listener struct{ told chan string }

func (l listener) SetCluster(agent, server string) { l.told <- agent + " " + server }

func (l listener) RemoveCluster(agent string) { l.told <- agent + " gone" }

// hears fails unless that, in any order, is what the listener is told next.
func (l listener) hears(t *testing.T, want ...string) {
	t.Helper()
	var heard []string
	late := time.After(timeout)
	for range want {
		select {
		case what := <-l.told:
			heard = append(heard, what)
		case <-late:
			require.FailNow(t, "nothing more is told", "%q of %q", heard, want)
		}
	}
	require.ElementsMatch(t, want, heard)
}

func TestClusterSecrets(t *testing.T) {
	s, l := newAPIServer(t), listener{make(chan string, 100)}
	s.put("berlin", "berlin", "https://berlin")
	s.put("password", "", "https://nowhere")
	c, log := follow(t, s, l)
	l.hears(t, "berlin https://berlin")
	require.Eventually(t, func() bool { return c.Ready() == nil }, timeout, time.Millisecond)

	s.put("password", "", "https://elsewhere")
	s.put("paris", "paris", "https://paris")
	l.hears(t, "paris https://paris")
	s.put("berlin", "berlin", "https://moved")
	l.hears(t, "berlin https://moved")
	s.put("berlin", "vienna", "https://moved")
	l.hears(t, "berlin gone", "vienna https://moved")
	s.put("berlin", "", "https://moved")
	l.hears(t, "vienna gone")
	s.remove("paris")
	l.hears(t, "paris gone")
	require.Empty(t, log.String())
	require.Empty(t, l.told, "of Secrets that are no cluster's nothing is told")
}

// Of several Secrets for one agent the first by name counts, whichever is heard of first, and people are told.
func TestSeveralClusterSecretsOfOneAgent(t *testing.T) {
	s, l := newAPIServer(t), listener{make(chan string, 100)}
	c, log := follow(t, s, l)
	s.put("two", "berlin", "https://two")
	l.hears(t, "berlin https://two")
	s.put("one", "berlin", "https://one")
	l.hears(t, "berlin https://one")
	require.Equal(t, "https://one", c.Server("berlin"))
	require.Contains(t, log.String(), "Several cluster Secrets name the same agent")
	require.Contains(t, log.String(), "agent=berlin counts=one next=two")
	s.put("two", "berlin", "https://other")
	l.hears(t, "berlin https://one")
	s.remove("one")
	l.hears(t, "berlin https://other")
	s.remove("two")
	l.hears(t, "berlin gone")
	require.Empty(t, c.Server("berlin"))
}

// What happens while the hub's API server cannot be heard is told afterwards.
func TestClusterSecretChangesDuringOutage(t *testing.T) {
	s, l := newAPIServer(t), listener{make(chan string, 100)}
	s.put("berlin", "berlin", "https://berlin")
	s.put("paris", "paris", "https://paris")
	s.put("vienna", "vienna", "https://vienna")
	follow(t, s, l)
	l.hears(t, "berlin https://berlin", "paris https://paris", "vienna https://vienna")
	s.interrupt(func() {
		s.remove("berlin")
		s.put("paris", "paris", "https://moved")
		s.put("rome", "rome", "https://rome")
	})
	l.hears(t, "berlin gone", "paris https://moved", "rome https://rome")
	require.Empty(t, l.told, "of what did not change nothing is told")
}

// Until the Secrets are known, it is said why they are not.
func TestNotReadyWhileSecretsAreForbidden(t *testing.T) {
	s, l := newAPIServer(t), listener{make(chan string, 100)}
	s.deny(true)
	s.put("berlin", "berlin", "https://berlin")
	c, _ := follow(t, s, l)
	require.ErrorContains(t, c.Ready(), "cluster Secrets on the hub: ")
	require.Eventually(t, func() bool { return strings.Contains(c.Ready().Error(), "secrets is forbidden") }, timeout, time.Millisecond)
	s.deny(false)
	l.hears(t, "berlin https://berlin")
	require.Eventually(t, func() bool { return c.Ready() == nil }, timeout, time.Millisecond)
}

// A Secret that holds something else than text does not keep the hub's components from hearing of the others, and people are told.
func TestClusterSecretThatIsNotUTF8IsIgnored(t *testing.T) {
	w, s := relaytest.Open(t), newAPIServer(t)
	s.put("bad", "bad", "https://\xff")
	s.put("good", "good", "https://good")
	s.put("good-too", "good", "\xc3")
	s.put("no-label", "Not.A_Label", "https://none")
	_, log := follow(t, s, w.Directory)
	known := directory.New(w.Hub, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	running.Go(func() { known.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	until := func(is func() bool) { t.Helper(); directorytest.Until(t, known, timeout, is) }
	until(func() bool { a, ok := known.Server("https://good"); return ok && a.Name == "good" })
	s.put("last", "last", "https://last")
	until(func() bool { _, ok := known.Server("https://last"); return ok })
	require.NoError(t, known.Ready())
	for _, name := range []string{"bad", "Not.A_Label"} {
		_, ok := known.Agent(name)
		require.False(t, ok, name)
	}
	require.Contains(t, log.String(), `secret=argocd/bad reason="key server: it is no UTF-8 text: write the address of the agent's cluster there"`)
	require.Contains(t, log.String(), `secret=argocd/good-too`)
	require.Contains(t, log.String(), `secret=argocd/no-label reason="label argocd-agent.argoproj-labs.io/agent-name: agent name`)

	s.put("bad", "bad", "https://mended")
	until(func() bool { _, ok := known.Server("https://mended"); return ok })
	s.put("bad", "bad", "\xff")
	until(func() bool { _, ok := known.Agent("bad"); return !ok })
	require.Equal(t, 2, strings.Count(log.String(), "secret=argocd/bad "))
}
