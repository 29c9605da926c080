package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab"
)

// disconnect ends the connection of one of the lab's agents and lets it make no other. Tests that use it cannot run beside
// others.
func disconnect(t *testing.T, name string) {
	t.Helper()
	agent := shared.Agent(name)
	mark := agent.Mark()
	agent.Principal.Refuse()
	t.Cleanup(agent.Principal.Restore)
	saysNow(t, agent, mark, "Connection to principal failed; retrying")
}

// reconnect undoes disconnect.
func reconnect(t *testing.T, name string) {
	t.Helper()
	agent := shared.Agent(name)
	mark := agent.Mark()
	agent.Principal.Restore()
	saysNow(t, agent, mark, lab.ConnectedAgentLine)
}

// start starts a program, or starts it again, as begin does.
func start(t *testing.T, begin func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	require.NoError(t, begin(ctx))
}

// Both sides notice a connection that died without a word, and the agent makes a new one.
func TestSilentConnectionTimesOut(t *testing.T) {
	t.Parallel()
	s := newSite(t, "silent", lab.AgentOptions{Args: []string{"--heartbeat-interval=1s"}}).connected(t)
	mark, seen := s.agent.Mark(), shared.Principal.Mark()
	s.agent.Principal.Cut()
	saysNow(t, s.agent, mark, "Connection to principal failed; retrying")
	saysNow(t, shared.Principal, seen, "An agent disconnected\" component=agents agent="+s.name)
	s.agent.Principal.Restore()
	saysNow(t, s.agent, mark, lab.ConnectedAgentLine)
	s.newTwin("afterwards").create(t).arrives(t)
}

// A short outage costs nothing: what was under way arrives, over the same connection.
func TestShortNetworkOutageIsTolerated(t *testing.T) {
	t.Parallel()
	s := newSite(t, "blinking", lab.AgentOptions{}).connected(t)
	app := s.newTwin("blinking").create(t)
	app.arrives(t)
	s.agent.Principal.Cut()
	app.hub.edit(t, label("team", "blue"))
	s.agent.Principal.Restore()
	app.spoke.becomes(t, labelled("team", "blue"))
	_, metrics := get(t, s.agent.MetricsURL)
	require.Contains(t, metrics, "\nargocd_agent_connections_total 1\n")
}

// A hub on another continent, over a bad line, is still a hub.
func TestHighLatencyToPrincipal(t *testing.T) {
	t.Parallel()
	s := prepareSite(t, unique("far-away"), lab.AgentOptions{})
	s.agent.Principal.Delay(150 * time.Millisecond)
	start(t, s.agent.Start)
	s.connected(t)
	s.newTwin("far-away").create(t).arrives(t)
}

// Proxies end connections over which nothing goes. Heartbeats go over them, in both directions.
func TestHeartbeatsKeepIdleStreamAlive(t *testing.T) {
	t.Parallel()
	const beat, idleTimeout = 4 * time.Second, 14 * time.Second // so that a machine that stands still for some seconds ends nothing
	proxy := newIdleTimeoutProxy(t, shared.Principal.Address, idleTimeout)
	host, port, err := net.SplitHostPort(proxy.listener.Addr().String())
	require.NoError(t, err)
	s := newSite(t, "quiet", lab.AgentOptions{Args: []string{
		"--server-address=" + host, "--server-port=" + port, "--heartbeat-interval=" + beat.String(),
	}}).connected(t)
	for began := time.Now(); time.Since(began) < 2*idleTimeout; {
		proxy.carries(t, proxy.up)
		proxy.carries(t, proxy.down)
	}
	_, metrics := get(t, s.agent.MetricsURL)
	require.Contains(t, metrics, "\nargocd_agent_connections_total 1\n")
}

// idleTimeoutProxy carries connections, and ends those over which nothing goes for a while in one of the directions.
type idleTimeoutProxy struct {
	listener    net.Listener
	target      string
	idleTimeout time.Duration
	up, down    chan struct{} // get one whenever something went there
	work        sync.WaitGroup
}

func newIdleTimeoutProxy(t *testing.T, target string, idleTimeout time.Duration) *idleTimeoutProxy {
	t.Helper()
	var config net.ListenConfig
	listener, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &idleTimeoutProxy{
		listener: listener, target: target, idleTimeout: idleTimeout, up: make(chan struct{}), down: make(chan struct{}),
	}
	ctx, cancel := context.WithCancel(context.Background())
	p.work.Go(func() { p.accept(ctx) })
	t.Cleanup(func() {
		cancel()
		_ = listener.Close()
		p.work.Wait()
	})
	return p
}

func (p *idleTimeoutProxy) accept(ctx context.Context) {
	for {
		near, err := p.listener.Accept()
		if err != nil {
			return
		}
		var dialer net.Dialer
		far, err := dialer.DialContext(ctx, "tcp", p.target)
		if err != nil {
			_ = near.Close()
			continue
		}
		p.work.Go(func() {
			<-ctx.Done()
			_ = near.Close()
			_ = far.Close()
		})
		p.work.Go(func() { p.carry(far, near, p.up) })
		p.work.Go(func() { p.carry(near, far, p.down) })
	}
}

func (p *idleTimeoutProxy) carry(to, from net.Conn, went chan<- struct{}) {
	defer func() { _ = errors.Join(to.Close(), from.Close()) }()
	buffer := make([]byte, 64<<10)
	for {
		if from.SetReadDeadline(time.Now().Add(p.idleTimeout)) != nil {
			return
		}
		n, err := from.Read(buffer)
		if _, writing := to.Write(buffer[:n]); writing != nil || err != nil && !errors.Is(err, io.EOF) || n == 0 {
			return
		}
		select {
		case went <- struct{}{}:
		default:
		}
	}
}

func (p *idleTimeoutProxy) carries(t *testing.T, went <-chan struct{}) {
	t.Helper()
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-went:
	case <-timer.C:
		t.Fatal("nothing goes over the connection")
	}
}

func TestPrincipalShutdownEndsStreamsWithUnavailable(t *testing.T) {
	t.Parallel()
	principal := newPrincipal(t, lab.PrincipalOptions{})
	s := newSite(t, "drained", lab.AgentOptions{Principal: principal}).connected(t)
	var apps []*twin
	for n := range 20 {
		apps = append(apps, s.newTwin("drained-"+strconv.Itoa(n)).create(t))
	}
	stopped(t, principal.Stop)
	require.Zero(t, principal.ExitCode())
	says(t, s.agent, "Principal is shutting down; reconnecting")
	start(t, principal.Start)
	for _, app := range apps {
		app.arrives(t)
	}
}

func TestAgentShutdownClosesStream(t *testing.T) {
	t.Parallel()
	s := newSite(t, "leaver", lab.AgentOptions{}).connected(t)
	mark := shared.Principal.Mark()
	stopped(t, s.agent.Stop)
	require.Zero(t, s.agent.ExitCode())
	saysNow(t, shared.Principal, mark, "An agent disconnected\" component=agents agent="+s.name)
}

// Nothing that hangs keeps a program that was asked to end.
func TestProgramsStopWhilePeersHang(t *testing.T) {
	t.Parallel()
	principal := newPrincipal(t, lab.PrincipalOptions{})
	s := newSite(t, "hung", lab.AgentOptions{Principal: principal}).connected(t)
	s.agent.APIServer.Cut()
	app := s.newTwin("hung").create(t)
	principal.APIServer.Cut()
	s.agent.Principal.Cut()
	stopped(t, s.agent.Stop)
	require.Zero(t, s.agent.ExitCode())
	stopped(t, principal.Stop)
	require.Zero(t, principal.ExitCode())
	s.agent.APIServer.Restore()
	principal.APIServer.Restore()
	s.agent.Principal.Restore()

	start(t, principal.Start)
	start(t, s.agent.Start)
	app.arrives(t)
}

// The principal's view of the hub, and the agent's of its spoke, outlive API servers that go away and come back.
func TestAPIServerRestart(t *testing.T) {
	for name, c := range map[string]*lab.Cluster{"hub": shared.Hub, "spoke": shared.Spoke("b")} {
		t.Run(name, func(t *testing.T) {
			app := newTwin("b", "after-"+name).create(t)
			app.arrives(t)
			c.APIServer.Kill()
			start(t, c.APIServer.Start)
			app.hub.edit(t, label("team", "blue"))
			app.spoke.becomes(t, labelled("team", "blue"))
		})
	}
}

// An API server that is starting forbids nearly everything until it has read who may do what. That is no refusal: it is not
// shown to anybody, and what was asked for meanwhile is done.
func TestForbiddenFromStartingAPIServerIsRetried(t *testing.T) {
	spoke := shared.Spoke("b")
	var apps []*twin
	var seen []*recorder
	for i := range 10 {
		app := newTwin("b", fmt.Sprint("during-", i)).create(t)
		app.arrives(t)
		apps, seen = append(apps, app), append(seen, watch(t, app.hub))
	}
	spoke.APIServer.Kill()
	started := make(chan error, 1)
	go func() { started <- spoke.APIServer.Start(t.Context()) }()
	for n, starting := 0, true; starting; n++ {
		if n < len(apps) {
			clickSync(t, apps[n])
		}
		for _, app := range apps {
			app.hub.edit(t, label("number", strconv.Itoa(n)))
		}
		select {
		case err := <-started:
			require.NoError(t, err)
			starting = false
		default:
		}
	}
	for i, app := range apps {
		last := app.hub.get(t).GetLabels()["number"]
		app.spoke.becomes(t, labelled("number", last))
		app.hub.becomes(t, syncedAndHealthy, phase("Succeeded"), idle, ran(1))
		require.Empty(t, seen[i].distinct(refusal))
	}
}

// refusal returns what an Application says is refused. That something is not taken yet is another matter: it may take long.
func refusal(object *unstructured.Unstructured) string {
	for message := range agentErrors(object) {
		if strings.Contains(message, " refuses ") {
			return message
		}
	}
	return ""
}
