package sessions_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/pki"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/converge"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/wire"
)

func TestAgentIsServed(t *testing.T) {
	o := open(t)
	o.memorySource("a").set("guestbook", "one")
	a := o.connectServed(t, "a")
	a.reportEmpty(t)
	a.requirePut(t, "guestbook", "one")
	require.InDelta(t, 1, o.metric(t, "argocd_principal_connected_agents"), 0)
	require.InDelta(t, 1, o.metric(t, "argocd_principal_agent_connections_total"), 0)
	require.Contains(t, o.log.String(), `msg="An agent connected to the subscription stream" agent=a`)
}

// What changes on the hub gets to the agent that it belongs to, and to no other.
func TestChangesGetToTheirAgent(t *testing.T) {
	o := open(t)
	agents := make(map[string]agent)
	for _, name := range []string{"a", "b", "c"} {
		agents[name] = o.connectServed(t, name)
		agents[name].reportEmpty(t)
		o.change(name, "first", name)
	}
	for name, a := range agents {
		a.requirePut(t, "first", name)
	}
	for name, a := range agents {
		o.change(name, "second", name+" again")
		a.requirePut(t, "second", name+" again")
	}
	o.Changed("nobody", facet, "guestbook")
	o.Resync("nobody", facet)
	require.Zero(t, o.Backlog("nothing"))
	require.False(t, o.ConfirmDeletions("a", facet, "no such token"))
}

// Operators are told how the sessions are.
func TestSessionsOfConnectedAgents(t *testing.T) {
	o := open(t)
	require.Empty(t, o.Sessions())
	o.memorySource("a").set("guestbook", "one")
	a := o.connectServed(t, "a")
	a.reportEmpty(t)
	_, err := a.receivePut() // and it does not say that it has it
	require.NoError(t, err)
	session := o.Sessions()["a"]
	require.Equal(t, hello().Mode, session.Mode)
	require.Equal(t, []string{hello().Kubernetes, hello().ArgoCD}, []string{session.Kubernetes, session.ArgoCD})
	require.Contains(t, session.Address, "127.0.0.1")
	require.True(t, session.CertificateEnd.After(time.Now()))
	require.Equal(t, 1, session.Backlog)
	require.Positive(t, session.Lag)
	require.Len(t, o.Sessions(), 1)
}

func TestResyncIsRequested(t *testing.T) {
	o := open(t)
	a := o.connectServed(t, "a")
	a.reportEmpty(t)
	o.change("a", "guestbook", "one")
	a.requirePut(t, "guestbook", "one")
	o.Resync("a", facet)
	m, err := a.Recv()
	require.NoError(t, err)
	require.Equal(t, converge.BucketRequest{Facet: facet, Buckets: []converge.Bucket{}}, m)
}

// Who may not connect learns why, and is not served.
func TestCallerThatIsNoAgentIsRefused(t *testing.T) {
	o := open(t)
	stranger, err := pki.NewCA(pki.CAOptions{CommonName: "a stranger's"})
	require.NoError(t, err)
	foreign, err := stranger.IssueClient(pki.ClientOptions{CommonName: "a"})
	require.NoError(t, err)
	old, err := o.ca.IssueClient(pki.ClientOptions{CommonName: "a", Validity: pki.Validity{
		NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: time.Now().Add(-time.Hour),
	}})
	require.NoError(t, err)
	for name, c := range map[string]struct {
		pair pki.Pair
		code codes.Code
		want string
	}{
		"none":          {pki.Pair{}, codes.Unavailable, "certificate"},
		"of another CA": {foreign, codes.Unavailable, "certificate"},
		"expired":       {old, codes.Unavailable, "expired"},
		"no DNS label":  {o.issue(t, "Not_A_Label"), codes.Unauthenticated, "Not_A_Label"},
		"reserved":      {o.issue(t, reserved), codes.Unauthenticated, reserved},
	} {
		a := o.connect(t, o.ca, c.pair)
		err := a.endReason(t)
		require.Equal(t, c.code, status.Code(err), "%s: %v", name, err)
		require.ErrorContains(t, err, c.want, name)
	}
	require.Zero(t, o.metric(t, "argocd_principal_agent_connections_total"))
}

// An agent does not talk to a principal that it does not trust.
func TestUntrustedPrincipalIsRefused(t *testing.T) {
	o := open(t)
	stranger, err := pki.NewCA(pki.CAOptions{CommonName: "a stranger's"})
	require.NoError(t, err)
	a := o.connect(t, stranger, o.issue(t, "a"))
	require.Equal(t, codes.Unavailable, status.Code(a.endReason(t)))
}

// Whom the principal no longer trusts it serves no longer, not even over a connection that it has accepted before. All others
// notice nothing.
func TestUntrustedAgentIsDisconnected(t *testing.T) {
	o := open(t)
	second, err := pki.NewCA(pki.CAOptions{CommonName: "second"})
	require.NoError(t, err)
	changed := o.material.Changed()
	o.roots.trust(o.ca, second)
	<-changed
	pair, err := second.IssueClient(pki.ClientOptions{CommonName: "b"})
	require.NoError(t, err)
	agents := make(map[string]agent)
	old := o.dial(t, o.ca, o.issue(t, "a"))
	for name, c := range map[string]*grpc.ClientConn{"a": old, "b": o.dial(t, o.ca, pair)} {
		a := stream(t, c)
		require.NoError(t, a.SendHello(hello()))
		_, err := a.RecvHello()
		require.NoError(t, err)
		a.reportEmpty(t)
		o.change(name, "guestbook", "one")
		a.requirePut(t, "guestbook", "one")
		agents[name] = a
	}

	o.roots.trust(second)
	for _, a := range []agent{agents["a"], stream(t, old)} {
		err = a.endReason(t)
		require.Equal(t, codes.Unauthenticated, status.Code(err), "%v", err)
		require.ErrorContains(t, err, "the client's certificate is no longer trusted")
		require.ErrorContains(t, err, "client certificate CN=a was issued by CN=test, which is none of the CAs trusted here")
	}
	o.change("b", "guestbook", "two")
	agents["b"].requirePut(t, "guestbook", "two")
	require.InDelta(t, 2, o.metric(t, "argocd_principal_agent_connections_total"), 0)
}

// Which mode an agent has may be the hub's to say: as a managed one it is given credentials.
func TestModeLabelOfClusterSecretIsEnforced(t *testing.T) {
	o := open(t)
	h := hello()
	err := o.connectAndGreet(t, "settled", h).endReason(t)
	require.Equal(t, codes.FailedPrecondition, status.Code(err), "%v", err)
	require.ErrorContains(t, err, `mode: the agent's is "managed", and the label argocd-agent.argoproj-labs.io/agent-mode of its cluster Secret `+
		`on the hub says "autonomous": set --agent-mode to that, or change the label`)
	h.Mode = "autonomous"
	_, err = o.connectAndGreet(t, "settled", h).RecvHello()
	require.NoError(t, err)

	// What the hub does not say is not for the agent to say.
	err = o.connectAndGreet(t, "a", h).endReason(t)
	require.Equal(t, codes.FailedPrecondition, status.Code(err), "%v", err)
	require.ErrorContains(t, err, "set --agent-mode=managed, or on the hub the label argocd-agent.argoproj-labs.io/agent-mode=autonomous of its "+
		"cluster Secret, as with: argocd-agentctl agent create a --mode autonomous")
}

// A hub that never heard of an agent would have it delete all that it holds. Once the hub has, the agent need not be restarted.
func TestUnknownAgentIsRefusedUntilItIsKnown(t *testing.T) {
	o := open(t)
	for name, c := range map[string]struct {
		err  error
		code codes.Code
		says string
	}{
		"stranger": {nil, codes.FailedPrecondition, `the hub has no cluster Secret, no namespace and no Application for agent "stranger"`},
		"doubtful": {errors.New("no answer"), codes.Unavailable, `whether the hub knows agent "doubtful" is not known: no answer`},
	} {
		o.unknown.Store(name, c.err)
		err := o.connectAndGreet(t, name, hello()).endReason(t)
		require.Equal(t, c.code, status.Code(err), "%v", err)
		require.ErrorContains(t, err, c.says)
		require.NotContains(t, o.sources, name, "nothing is shared with it")
		o.unknown.Delete(name)
		o.connectServed(t, name)
	}
}

// What an agent that is called like a cluster of the hub's own shows would be deployed there.
func TestAgentWithTheNameOfAnotherClusterIsRefused(t *testing.T) {
	o := open(t)
	err := o.connectAndGreet(t, "pushed", hello()).endReason(t)
	require.Equal(t, codes.FailedPrecondition, status.Code(err), "%v", err)
	require.ErrorContains(t, err, `cluster Secret argocd/pushed-secret on the hub is of a cluster named "pushed" that is not this agent's`)
	require.NotContains(t, o.sources, "pushed", "nothing is shared with it")
}

// An agent of which the hub has not heard is served once its cluster has registered, and is told why that cannot be. One that the hub knows
// is served whatever comes of that.
func TestAgentsThatRegisterThemselves(t *testing.T) {
	o := open(t)
	for _, name := range []string{"new", "refused", "failing"} {
		o.unknown.Store(name, nil)
	}
	o.registers.Store("new", nil)
	o.registers.Store("refused", status.Error(codes.ResourceExhausted, "that is the limit"))
	o.registers.Store("failing", errors.New("secrets is forbidden"))
	o.registers.Store("known", errors.New("secrets is forbidden"))
	h := hello()
	h.ClusterLabels = map[string]string{"team": "blue"}
	a := o.connectAndGreet(t, "new", h)
	_, err := a.RecvHello()
	require.NoError(t, err)
	require.Equal(t, "new blue", <-o.registered)
	o.connectServed(t, "known")
	require.Eventually(t, func() bool { return strings.Contains(o.log.String(), "An agent's cluster could not register") }, timeout, time.Millisecond)

	err = o.connectAndGreet(t, "refused", hello()).endReason(t)
	require.Equal(t, codes.ResourceExhausted, status.Code(err), "%v", err)
	err = o.connectAndGreet(t, "failing", hello()).endReason(t)
	require.Equal(t, codes.Unavailable, status.Code(err), "%v", err)
	require.ErrorContains(t, err, "secrets is forbidden")
	require.Equal(t, 1, strings.Count(o.log.String(), "that is the limit"))
}

// Nothing is made on the hub for an agent that is refused: one that does not fit, or is called like another cluster.
func TestAgentsThatAreRefusedDoNotRegister(t *testing.T) {
	o := open(t)
	o.registers.Store("pushed", nil)
	o.registers.Store("a", nil)
	misfits := []func(*wire.Hello){
		func(h *wire.Hello) { h.Mapping = "destination" }, func(h *wire.Hello) { h.Selector = "a=b" },
		func(h *wire.Hello) { h.Mode = "both" }, func(h *wire.Hello) { h.Oldest, h.Newest = 98, 99 },
	}
	for _, change := range misfits {
		h := hello()
		change(&h)
		require.Equal(t, codes.FailedPrecondition, status.Code(o.connectAndGreet(t, "a", h).endReason(t)))
	}
	o.unknown.Store("pushed", nil)
	err := o.connectAndGreet(t, "pushed", hello()).endReason(t)
	require.ErrorContains(t, err, `is of a cluster named "pushed" that is not this agent's`)
	require.Empty(t, o.registered)
}

func TestStreamsBeforeRunAreRefused(t *testing.T) {
	o := newFixture(t)
	o.listen(t)
	require.Equal(t, codes.Unavailable, status.Code(o.connectAndGreet(t, "a", hello()).endReason(t)))
	o.run(t)
	o.connectServed(t, "a")
}

// Two agents of one name: the newer is served, and the older gets the reason why it no longer is.
func TestNewerAgentOfTheSameNameIsServed(t *testing.T) {
	o := open(t)
	older := o.connectServed(t, "a")
	older.reportEmpty(t)
	o.change("a", "guestbook", "one")
	older.requirePut(t, "guestbook", "one")
	newer := o.connectServed(t, "a")
	err := older.endReason(t)
	require.Equal(t, codes.Aborted, status.Code(err))
	require.ErrorContains(t, err, "another agent connected by the same name")
	newer.reportEmpty(t)
	newer.requirePut(t, "guestbook", "one")
	o.change("a", "guestbook", "two")
	newer.requirePut(t, "guestbook", "two")
	require.InDelta(t, 1, o.metric(t, "argocd_principal_connected_agents"), 0)
}

// Of several that come at once, one is served in the end, and all others get the reason why they are not.
func TestOneOfManyAgentsOfTheSameNameIsServed(t *testing.T) {
	const many = 3
	o := open(t)
	o.memorySource("a").set("guestbook", "one")
	pair := o.issue(t, "a")
	agents := make([]agent, many)
	for i := range agents {
		agents[i] = o.connect(t, o.ca, pair)
	}
	served, ended := make(chan int, many), make(chan error, many)
	var all sync.WaitGroup
	for i, a := range agents {
		all.Go(func() {
			err := errors.Join(unlessEnded(a.SendHello(hello())), unlessEnded(a.Send(converge.Digest{Facet: facet, Resync: 1})))
			for err == nil {
				var put converge.Put
				if put, err = a.put(); string(put.Payload) == "last" {
					served <- i
				}
			}
			ended <- err
		})
	}
	for range many - 1 {
		err := <-ended
		require.Equal(t, codes.Aborted, status.Code(err), "%v", err)
	}
	o.change("a", "guestbook", "last")
	<-served
	require.Empty(t, ended)
	require.InDelta(t, 1, o.metric(t, "argocd_principal_connected_agents"), 0)
	o.stop()
	all.Wait()
}

// A mode that an agent may no longer have ends its session.
func TestModeThatIsTakenBackEndsTheSession(t *testing.T) {
	o := open(t)
	h := hello()
	h.Mode = "autonomous"
	settled := o.connectAndGreet(t, "settled", h)
	_, err := settled.RecvHello()
	require.NoError(t, err)
	o.SetCluster("settled", "https://settled") // of the same mode
	other := o.connectServed(t, "a")
	o.modes.Store("settled", "managed")
	o.SetCluster("settled", "https://settled")
	err = settled.endReason(t)
	require.Equal(t, codes.FailedPrecondition, status.Code(err), "%v", err)
	require.ErrorContains(t, err, `says "managed"`)
	other.reportEmpty(t)
	o.change("a", "guestbook", "one")
	other.requirePut(t, "guestbook", "one")
}

func TestIncompatibleAgentsAreRefused(t *testing.T) {
	o := open(t)
	for want, change := range map[string]func(*wire.Hello){
		"upgrade the agent":           func(h *wire.Hello) { h.Oldest, h.Newest = -1, 0 },
		"upgrade the principal":       func(h *wire.Hello) { h.Oldest, h.Newest = 99, 100 },
		"set --agent-mode":            func(h *wire.Hello) { h.Mode = "dependent" },
		"set --label-selector":        func(h *wire.Hello) { h.Selector = "team=blue" },
		"--destination-based-mapping": func(h *wire.Hello) { h.Mapping = "destination" },
	} {
		h := hello()
		change(&h)
		err := o.connectAndGreet(t, "a", h).endReason(t)
		require.Equal(t, codes.FailedPrecondition, status.Code(err), "%v", err)
		require.ErrorContains(t, err, want)
	}
	o.connectServed(t, "a")
}

// A newer agent is spoken to in the version that both know.
func TestVersionIsAgreedOn(t *testing.T) {
	o := open(t)
	h := hello()
	h.Newest = 99
	answer, err := o.connectAndGreet(t, "a", h).RecvHello()
	require.NoError(t, err)
	require.Equal(t, wire.NewestProtocol, answer.Newest)
}

// One that does not fit does not end the session of one that does.
func TestRefusedAgentDoesNotSupersede(t *testing.T) {
	o := open(t)
	a := o.connectServed(t, "a")
	h := hello()
	h.Mode = "dependent"
	require.Equal(t, codes.FailedPrecondition, status.Code(o.connectAndGreet(t, "a", h).endReason(t)))
	a.reportEmpty(t)
	o.change("a", "guestbook", "one")
	a.requirePut(t, "guestbook", "one")
}

func TestStreamThatDoesNotBeginWithHello(t *testing.T) {
	o := open(t)
	a := o.connect(t, o.ca, o.issue(t, "a"))
	require.NoError(t, a.Send(converge.Digest{Facet: facet, Resync: 1}))
	require.ErrorContains(t, a.endReason(t), "instead of a hello")
}

// An agent that misses its heartbeats is disconnected, so that it does not count as connected.
// Before its hello each stream may hold a message of megabytes that nobody has looked at.
func TestStreamsOfAnAgentWithoutHelloAreBounded(t *testing.T) {
	o := open(t)
	connection := o.dial(t, o.ca, o.issue(t, "berlin"))
	streams := make([]agent, 40)
	for i := range streams {
		streams[i] = stream(t, connection)
	}
	refused := make(chan error, len(streams))
	for _, a := range streams {
		go func() {
			_, err := a.RecvHello()
			refused <- err
		}()
	}
	for range 40 - 16 {
		require.Equal(t, codes.ResourceExhausted, status.Code(<-refused))
	}
	o.connectServed(t, "paris") // another agent is not concerned
}

func TestSilentAgentIsDisconnected(t *testing.T) {
	o := open(t)
	h := hello()
	h.Heartbeat = 1 // taken for the shortest that there is
	a := o.connectAndGreet(t, "a", h)
	require.ErrorContains(t, a.endReason(t), "nothing was received")
}

// An agent that reads nothing stops nobody but itself.
func TestSlowAgentDoesNotBlockOthers(t *testing.T) {
	o := open(t)
	slow, quick := o.connectServed(t, "slow"), o.connectServed(t, "quick")
	for name, a := range map[string]agent{"slow": slow, "quick": quick} {
		a.reportEmpty(t)
		o.change(name, "guestbook", "before")
		a.requirePut(t, "guestbook", "before")
	}
	for i := range 300 {
		o.memorySource("slow").set(converge.Key(fmt.Sprint("app-", i)), string(make([]byte, 64<<10)))
	}
	for i := range 100 {
		for j := range 300 {
			o.Changed("slow", facet, converge.Key(fmt.Sprint("app-", j)))
		}
		o.change("quick", "guestbook", fmt.Sprint(i))
		quick.requirePut(t, "guestbook", fmt.Sprint(i))
	}
	require.GreaterOrEqual(t, o.Backlog(facet), 300)
}

// The stream that ends tells the agent to come back, to another replica of the principal or to this one when it is there
// again.
func TestAgentsAreAskedToReconnectAtTheEnd(t *testing.T) {
	o := open(t)
	a, b := o.connectServed(t, "a"), o.connectServed(t, "b")
	o.stop()
	for _, agent := range []agent{a, b} {
		err := agent.endReason(t)
		require.Equal(t, codes.Unavailable, status.Code(err))
		require.ErrorContains(t, err, "shutting down")
	}
	<-o.stopped
	require.Zero(t, o.metric(t, "argocd_principal_connected_agents"))
	require.Equal(t, codes.Unavailable, status.Code(o.connectAndGreet(t, "a", hello()).endReason(t)))
}
