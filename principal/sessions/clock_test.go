package sessions_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cloudevents/sdk-go/binding/format/protobuf/v2/pb"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/bubble"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/pki"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/goaway"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/principal/sessions"
)

// call is a call of Connect without a network, for tests whose clock is a fake one. Like gRPC, it ends when the handler
// returns, and with it whatever blocks.
type call struct {
	grpc.ServerStream
	ctx     context.Context //nolint:containedctx // that is what a gRPC stream has
	in, out chan *pb.CloudEvent
}

func (c *call) Context() context.Context { return c.ctx }

func (c *call) Send(e *pb.CloudEvent) error {
	select {
	case <-c.ctx.Done():
		return c.ctx.Err()
	case c.out <- e:
		return nil
	}
}

func (c *call) Recv() (*pb.CloudEvent, error) {
	select {
	case <-c.ctx.Done():
		return nil, c.ctx.Err()
	case e := <-c.in:
		return e, nil
	}
}

// callConnect calls Connect as an agent whose certificate is valid for so long, and returns its end of the stream and a channel
// for how the call ends.
func (o *fixture) callConnect(t *testing.T, name string, validFor time.Duration) (agent, <-chan error) {
	t.Helper()
	return o.callConnectOver(t, name, validFor, make(chan *pb.CloudEvent, 10))
}

// callConnectOver does so over a network that takes as much from the principal as a channel does.
func (o *fixture) callConnectOver(t *testing.T, name string, validFor time.Duration, down chan *pb.CloudEvent) (agent, <-chan error) {
	t.Helper()
	ctx, end := sessions.Cancellable(o.authenticated(t, name, validFor))
	up := make(chan *pb.CloudEvent, 10)
	ended := make(chan error, 1)
	go func() {
		defer end()
		ended <- o.Connect(&call{ctx: ctx, in: up, out: down}) //nolint:contextcheck // the call has it, as in gRPC
	}()
	return newAgent(t, &call{ctx: ctx, in: down, out: up}, end), ended
}

// authenticated returns the context of a connection over which an agent has shown a certificate that is valid for so long.
func (o *fixture) authenticated(t *testing.T, name string, validFor time.Duration) context.Context {
	t.Helper()
	pair, err := o.ca.IssueClient(pki.ClientOptions{CommonName: name, Validity: pki.Validity{
		NotBefore: time.Now(), NotAfter: time.Now().Add(validFor),
	}})
	require.NoError(t, err)
	certificate, err := pair.TLS()
	require.NoError(t, err)
	return peer.NewContext(t.Context(), &peer.Peer{AuthInfo: credentials.TLSInfo{
		State: tls.ConnectionState{
			HandshakeComplete: true, PeerCertificates: []*x509.Certificate{certificate.Leaf},
			VerifiedChains: [][]*x509.Certificate{{certificate.Leaf, o.ca.Certificate()}},
		},
		CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity},
	}})
}

// withFakeClock runs a test of a running service with a fake clock.
func withFakeClock(t *testing.T, test func(t *testing.T, o *fixture)) {
	t.Helper()
	bubble.Test(t, func(t *testing.T) {
		o := newFixture(t)
		o.run(t)
		synctest.Wait()
		test(t, o)
	})
}

func TestStreamDoesNotOutliveItsCertificate(t *testing.T) {
	withFakeClock(t, func(t *testing.T, o *fixture) {
		began := time.Now()
		a, ended := o.callConnect(t, "a", time.Hour)
		require.NoError(t, a.SendHello(hello()))
		_, err := a.RecvHello()
		require.NoError(t, err)
		err = <-ended
		require.Equal(t, time.Hour, time.Since(began))
		require.Equal(t, codes.Unauthenticated, status.Code(err))
		require.ErrorContains(t, err, "expired")
	})
}

// A hub that is slow to write does not take up all the time that an agent waits for an answer, and an agent that is slow itself leaves it as
// much. Whoever is refused for that learns it.
func TestSlowRegistrationIsGivenUp(t *testing.T) {
	withFakeClock(t, func(t *testing.T, o *fixture) {
		greets := func(name string, after, takes time.Duration) (agent, <-chan error, time.Time) {
			o.registers.Store(name, takes)
			a, ended := o.callConnect(t, name, time.Hour)
			<-time.After(after)
			began := time.Now()
			require.NoError(t, a.SendHello(hello()))
			return a, ended, began
		}
		o.unknown.Store("late", nil)
		a, _, _ := greets("late", 9*time.Second, 3*time.Second)
		_, err := a.RecvHello()
		require.NoError(t, err)

		o.unknown.Store("new", nil)
		_, ended, began := greets("new", 0, time.Hour)
		err = <-ended
		require.Equal(t, 4*time.Second, time.Since(began))
		require.Equal(t, codes.Unavailable, status.Code(err), "%v", err)
		require.ErrorContains(t, err, "the hub's API server did not answer within 4s, and the agent tries again by itself: context deadline exceeded")

		a, _, began = greets("known", 0, time.Hour)
		_, err = a.RecvHello()
		require.NoError(t, err)
		require.Equal(t, 4*time.Second, time.Since(began))
		require.Contains(t, o.log.String(), "An agent's cluster could not register; the agent is served without that")
	})
}

// An agent that took its connection for dead is served by another one. When the network delivers late what the agent had
// said over the first one, its hello and its end, the agent is still served.
func TestLateHelloOfEndedConnectionDoesNotSupersede(t *testing.T) {
	withFakeClock(t, func(t *testing.T, o *fixture) {
		served, ended := o.callConnect(t, "a", time.Hour)
		require.NoError(t, served.SendHello(hello()))
		_, err := served.RecvHello()
		require.NoError(t, err)
		served.reportEmpty(t)

		late, refused := o.callConnect(t, "a", time.Hour)
		synctest.Wait() // until it is asked for its hello
		entering, proceed := make(chan struct{}), make(chan struct{})
		o.sharing = func() { close(entering); <-proceed }
		another, _ := o.callConnect(t, "b", time.Hour)
		require.NoError(t, another.SendHello(hello()))
		<-entering // and the late one cannot, until this one has
		require.NoError(t, late.SendHello(hello()))
		_, err = late.RecvHello()
		require.NoError(t, err)
		late.hangUp()
		close(proceed)
		require.Equal(t, codes.Canceled, status.Code(<-refused))

		require.Empty(t, ended)
		o.change("a", "guestbook", "one")
		served.requirePut(t, "guestbook", "one")
	})
}

// However the trust in a certificate ends, its stream does not outlive that.
func TestStreamDoesNotOutliveTheTrustInItsCertificate(t *testing.T) {
	for name, begin := range map[string]func(t *testing.T, a agent){
		"while it is served": func(t *testing.T, a agent) {
			require.NoError(t, a.SendHello(hello()))
			_, err := a.RecvHello()
			require.NoError(t, err)
		},
		"before it said hello": func(*testing.T, agent) { synctest.Wait() },
	} {
		t.Run(name, func(t *testing.T) {
			withFakeClock(t, func(t *testing.T, o *fixture) {
				a, ended := o.callConnect(t, "a", time.Hour)
				begin(t, a)
				other, err := pki.NewCA(pki.CAOptions{CommonName: "other"})
				require.NoError(t, err)
				began := time.Now()
				o.roots.trust(o.ca, other)
				synctest.Wait()
				require.Empty(t, ended, "its CA is still among them")
				o.roots.trust(other)
				err = <-ended
				require.Zero(t, time.Since(began))
				require.Equal(t, codes.Unauthenticated, status.Code(err))
				require.ErrorContains(t, err, "the client's certificate is no longer trusted")
				require.ErrorContains(t, err, "issue it by one of those")
			})
		})
	}
}

// A shutdown does not wait for the hellos of those that open a stream and say nothing.
func TestShutdownEndsStreamsWithoutHello(t *testing.T) {
	withFakeClock(t, func(t *testing.T, o *fixture) {
		began := time.Now()
		_, ended := o.callConnect(t, "a", time.Hour)
		synctest.Wait()
		o.stop()
		require.Equal(t, codes.Unavailable, status.Code(<-ended))
		<-o.stopped
		require.Zero(t, time.Since(began))
		require.Contains(t, o.log.String(), `msg="Shutting down; agents are asked to connect again" connections=1`)
		require.Equal(t, 1, strings.Count(o.log.String(), "\n"), "of an agent nothing is logged")
	})
}

// Agents that may go elsewhere are asked in turns, within the time that there is, and learn what is asked.
func TestAgentsAreAskedInTurnsToGoElsewhere(t *testing.T) {
	for within, want := range map[time.Duration][]time.Duration{
		0:                    {0, 0, 0},
		6 * time.Millisecond: {0, 2 * time.Millisecond, 4 * time.Millisecond},
		10 * time.Second:     {0, 5 * time.Millisecond, 10 * time.Millisecond}, // no longer than needed
	} {
		t.Run(within.String(), func(t *testing.T) {
			withFakeClock(t, func(t *testing.T, o *fixture) {
				o.drain = within
				after := make(chan time.Duration, len(want))
				began := time.Now()
				for i := range want {
					a, ended := o.callConnect(t, string(rune('a'+i)), time.Hour)
					require.NoError(t, a.SendHello(hello()))
					_, err := a.RecvHello()
					require.NoError(t, err)
					go func() {
						if err := <-ended; goaway.Is(err) {
							after <- time.Since(began)
						}
					}()
				}
				synctest.Wait()
				o.stop()
				synctest.Wait()
				_, ended := o.callConnect(t, "late", time.Hour)
				require.True(t, goaway.Is(<-ended), "nobody is taken any more")
				for _, d := range want {
					require.Equal(t, d, <-after)
				}
				<-o.stopped
			})
		})
	}
}

// withStartingPrincipal does so before all of the hub's objects are known.
func withStartingPrincipal(t *testing.T, test func(t *testing.T, o *fixture)) {
	t.Helper()
	withFakeClock(t, func(t *testing.T, o *fixture) {
		o.synced = make(chan struct{})
		test(t, o)
	})
}

func TestAgentWaitsForPrincipalThatIsStarting(t *testing.T) {
	withStartingPrincipal(t, func(t *testing.T, o *fixture) {
		a, _ := o.callConnect(t, "a", time.Hour)
		require.NoError(t, a.SendHello(hello()))
		synctest.Wait()
		close(o.synced)
		_, err := a.RecvHello()
		require.NoError(t, err)
	})
}

func TestAgentIsToldWhyThePrincipalDoesNotBecomeReady(t *testing.T) {
	withStartingPrincipal(t, func(t *testing.T, o *fixture) {
		a, ended := o.callConnect(t, "a", time.Hour)
		require.NoError(t, a.SendHello(hello()))
		began := time.Now()
		err := <-ended
		require.Equal(t, codes.Unavailable, status.Code(err))
		require.ErrorContains(t, err, "the principal is not ready: the first list is under way")
		require.Equal(t, 5*time.Second, time.Since(began))
	})
}

func TestShutdownEndsWaitForReadiness(t *testing.T) {
	withStartingPrincipal(t, func(t *testing.T, o *fixture) {
		began := time.Now()
		_, ended := o.callConnect(t, "a", time.Hour)
		synctest.Wait()
		o.stop()
		err := <-ended
		require.Equal(t, codes.Unavailable, status.Code(err))
		require.ErrorContains(t, err, "the principal is shutting down: connect again")
		require.NotContains(t, o.log.String(), "not ready")
		require.Equal(t, began, time.Now())
	})
}

func TestAgentWithoutHelloIsDisconnected(t *testing.T) {
	withFakeClock(t, func(t *testing.T, o *fixture) {
		began := time.Now()
		_, ended := o.callConnect(t, "a", time.Hour)
		err := <-ended
		require.Equal(t, 10*time.Second, time.Since(began))
		require.Equal(t, codes.DeadlineExceeded, status.Code(err))
		require.ErrorContains(t, err, "hello")
	})
}

// One that says nothing, while another of its name is served, drives nobody away.
func TestConnectionWithoutHelloDoesNotSupersede(t *testing.T) {
	withFakeClock(t, func(t *testing.T, o *fixture) {
		served, ended := o.callConnect(t, "a", time.Hour)
		require.NoError(t, served.SendHello(hello()))
		_, err := served.RecvHello()
		require.NoError(t, err)
		_, silent := o.callConnect(t, "a", time.Hour)
		require.Error(t, <-silent)
		require.Empty(t, ended)
		served.reportEmpty(t)
		o.change("a", "guestbook", "one")
		served.requirePut(t, "guestbook", "one")
		o.stop()
		require.Equal(t, codes.Unavailable, status.Code(<-ended))
	})
}

// An agent that is away is remembered as long as it has a cluster Secret, even an invalid one, of which the listeners are
// notified as if it were gone.
func TestAgentWithoutSessionAndClusterIsForgotten(t *testing.T) {
	withFakeClock(t, func(t *testing.T, o *fixture) {
		comeAndGo := func() {
			a, ended := o.callConnect(t, "a", time.Hour)
			require.NoError(t, a.SendHello(hello()))
			_, err := a.RecvHello()
			require.NoError(t, err)
			synctest.Wait()
			o.RemoveCluster("a")
			require.Empty(t, o.forgotten, "it has a session")
			a.hangUp()
			require.Error(t, <-ended)
		}
		comeAndGo()
		o.RemoveCluster("a")
		require.Empty(t, o.forgotten, "it still has a cluster Secret")
		o.withoutCluster.Store(true)
		o.RemoveCluster("a")
		require.Equal(t, "a", <-o.forgotten)
		comeAndGo()
		require.Equal(t, "a", <-o.forgotten)
		require.Empty(t, o.forgotten)
	})
}

// An agent that reads nothing, not even the answer to its hello, is disconnected, and no shutdown waits for it.
func TestAgentThatDoesNotReadTheHelloIsDisconnected(t *testing.T) {
	for name, c := range map[string]struct {
		stop bool
		code codes.Code
		most time.Duration
	}{
		"by itself": {false, codes.DeadlineExceeded, 12 * time.Second}, "at a shutdown": {true, codes.Unavailable, 2 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			withFakeClock(t, func(t *testing.T, o *fixture) {
				began := time.Now()
				a, ended := o.callConnectOver(t, "a", time.Hour, make(chan *pb.CloudEvent))
				require.NoError(t, a.SendHello(hello()))
				synctest.Wait()
				if c.stop {
					o.stop()
				}
				require.Equal(t, c.code, status.Code(<-ended))
				require.LessOrEqual(t, time.Since(began), c.most)
				o.stop()
				<-o.stopped
				require.LessOrEqual(t, time.Since(began), c.most)
			})
		})
	}
}

// An agent that has been told more of the hub than this principal knows yet, by another one, is told nothing before it does.
func TestPrincipalSaysNothingBeforeItHasCaughtUp(t *testing.T) {
	withFakeClock(t, func(t *testing.T, o *fixture) {
		o.change("a", "guestbook", "one")
		o.behind = make(chan struct{})
		a, ended := o.callConnect(t, "a", time.Hour)
		h := hello()
		h.Seen = map[string]uint64{string(facet): 7, "unheard-of": 1}
		require.NoError(t, a.SendHello(h))
		_, err := a.RecvHello()
		require.NoError(t, err)
		a.reportEmpty(t)
		said := make(chan error, 1)
		go func() {
			_, err := a.put()
			said <- err
		}()
		synctest.Wait()
		require.Empty(t, said)
		require.Equal(t, uint64(7), o.awaited.Load())
		close(o.behind)
		require.NoError(t, <-said)
		require.Empty(t, ended)
	})
}

func TestAgentIsToldThatThePrincipalIsBehind(t *testing.T) {
	withFakeClock(t, func(t *testing.T, o *fixture) {
		o.behind = make(chan struct{})
		a, ended := o.callConnect(t, "a", time.Hour)
		h := hello()
		h.Seen = map[string]uint64{string(facet): 7}
		require.NoError(t, a.SendHello(h))
		began := time.Now()
		err := <-ended
		require.Equal(t, codes.Unavailable, status.Code(err))
		require.ErrorContains(t, err, "the principal is behind what the agent has seen of the hub: connect again")
		require.Equal(t, 10*time.Second, time.Since(began))
		require.Contains(t, o.log.String(), "The principal is behind what the agent has seen of the hub")
	})
}
