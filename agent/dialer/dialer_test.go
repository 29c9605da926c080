package dialer_test

import (
	"context"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/bubble"
)

var (
	errAway       = status.Error(codes.Unavailable, "the principal is shutting down")
	errSuperseded = status.Error(codes.Aborted, "another agent connected by the same name")
)

func TestConnectionIsShown(t *testing.T) {
	withFakeClock(t, func(t *testing.T, o *fixture) {
		require.ErrorContains(t, o.Connected(), "first connection")
		c := <-o.principal.calls
		require.Equal(t, hello(t.Context()), c.greet(t))
		synctest.Wait()
		require.NoError(t, o.Connected())
		require.InDelta(t, 1, o.metric(t, "argocd_agent_connection_status"), 0)
		require.InDelta(t, 1, o.metric(t, "argocd_agent_connections_total"), 0)
		require.Contains(t, o.log.String(), `msg="Starting to receive events from event stream"`)
		require.Contains(t, o.log.String(), "agent=a")

		c.end(errAway)
		synctest.Wait()
		require.ErrorContains(t, o.Connected(), "the principal is shutting down")
		require.Zero(t, o.metric(t, "argocd_agent_connection_status"))
		(<-o.principal.calls).greet(t)
		synctest.Wait()
		require.NoError(t, o.Connected())
		require.InDelta(t, 2, o.metric(t, "argocd_agent_connections_total"), 0)
	})
}

// refuse has so many calls end at once, and returns how long the agent waits before it calls again after each.
func (o *fixture) refuse(c *call, err error, times int) (next *call, waits []time.Duration) {
	for range times {
		ended := time.Now()
		c.end(err)
		c = <-o.principal.calls
		waits = append(waits, c.at.Sub(ended))
	}
	return c, waits
}

// requireJittered fails unless a wait is what it should be, less up to half of it.
func requireJittered(t *testing.T, want, wait time.Duration) {
	t.Helper()
	require.Greater(t, wait, want/2)
	require.LessOrEqual(t, wait, want+distance)
}

// away lets the network be the reason for a while, and returns how long the agent then takes to be back, and after which waits.
func (o *fixture) away(t *testing.T, length time.Duration) (back time.Duration, waits []time.Duration) {
	t.Helper()
	o.network.Store(false)
	over := time.AfterFunc(length, func() { o.network.Store(true) })
	defer over.Stop()
	left := time.Now()
	dials := o.dialled()
	(<-o.principal.calls).greet(t)
	back = time.Since(left) - length
	last := left
	for _, at := range o.dialled()[len(dials):] {
		waits = append(waits, at.Sub(last))
		last = at
	}
	return back, waits
}

// However long a principal was away: who looks after it waits for the agents, all of them.
func TestAgentIsBackSoonAfterItsPrincipal(t *testing.T) {
	for _, length := range []time.Duration{time.Second, 20 * time.Second, time.Hour} {
		withFakeClock(t, func(t *testing.T, o *fixture) {
			c := <-o.principal.calls
			c.greet(t)
			after(time.Minute)
			c.end(errAway)
			back, waits := o.away(t, length)
			require.Less(t, back, 5*time.Second)
			want := 500 * time.Millisecond
			different := make(map[time.Duration]bool)
			for _, wait := range waits {
				requireJittered(t, want, wait)
				different[wait] = true
				want = min(2*want, 2*time.Second)
			}
			require.Greater(t, len(different), len(waits)/2, "agents that lost a principal together must not return together")
		})
	}
}

// A network that drops packets answers nothing, and the agent asks again before the operating system would.
func TestAgentIsBackSoonAfterANetworkThatAnswersNothing(t *testing.T) {
	for _, length := range []time.Duration{10 * time.Second, 20 * time.Second, 61 * time.Second} {
		withFakeClock(t, func(t *testing.T, o *fixture) {
			c := <-o.principal.calls
			c.greet(t)
			after(time.Minute)
			o.swallow.Store(true)
			c.end(errAway)
			back, _ := o.away(t, length)
			require.Less(t, back, 5*time.Second)
			require.Contains(t, o.log.String(), "no answer from the network")
		})
	}
}

// A principal that is rolled out again and again says so each time, and finds its agents each time.
func TestEachOfManyRestartsIsFollowedByAConnectionAtOnce(t *testing.T) {
	withFakeClock(t, func(t *testing.T, o *fixture) {
		c := <-o.principal.calls
		for range 8 {
			c.greet(t)
			after(5 * time.Second)
			var waits []time.Duration
			c, waits = o.refuse(c, errAway, 1)
			requireJittered(t, 500*time.Millisecond, waits[0])
		}
	})
}

// A principal that would not have the agent is not asked again every second.
func TestRefusedAgentBacksOff(t *testing.T) {
	for _, code := range []codes.Code{codes.Unauthenticated, codes.PermissionDenied, codes.FailedPrecondition, codes.ResourceExhausted} {
		withFakeClock(t, func(t *testing.T, o *fixture) {
			c, waits := o.refuse(<-o.principal.calls, status.Error(code, "not you"), 9)
			want := 500 * time.Millisecond
			for _, wait := range waits {
				requireJittered(t, want, wait)
				want = min(2*want, 30*time.Second)
			}
			_, waits = o.refuse(c, errAway, 1)
			requireJittered(t, 500*time.Millisecond, waits[0])
			require.Less(t, strings.Count(o.log.String(), "Connection to principal failed"), 6,
				"the log says it once a minute, and when the reason is another:\n%s", o.log.String())
			require.Contains(t, o.log.String(), "the principal is shutting down")
		})
	}
}

// A principal gains nothing by what it says: not more calls than by hanging up, and no room in the log.
func TestPrincipalThatAlwaysSaysSomethingElse(t *testing.T) {
	for _, c := range []struct {
		code  codes.Code
		most  time.Duration // between calls
		lasts time.Duration // of each connection
	}{
		{codes.Unavailable, 2 * time.Second, 0},
		{codes.Unavailable, 500 * time.Millisecond, 2 * time.Second},
		{codes.PermissionDenied, 30 * time.Second, 0},
	} {
		withFakeClock(t, func(t *testing.T, o *fixture) {
			call, last := <-o.principal.calls, time.Duration(0)
			for i := range 20 {
				if c.lasts > 0 {
					call.greet(t)
					after(c.lasts)
				}
				var waits []time.Duration
				call, waits = o.refuse(call, status.Errorf(c.code, "%d\x1b[2J\n\u202e%s", i, strings.Repeat("x", 3000)), 1)
				last = waits[0]
			}
			requireJittered(t, c.most, last)
			require.NotContains(t, o.Connected().Error(), "\x1b")
			require.Less(t, len(o.Connected().Error()), 1100)
			lines := 0
			for line := range strings.Lines(o.log.String()) {
				if strings.Contains(line, "Connection to principal failed") {
					lines++
					require.Contains(t, line, "?[2J ?xxx")
					require.Less(t, len(line), 1400)
				}
			}
			require.Positive(t, lines)
			if c.code == codes.Unavailable { // all within a minute
				require.Equal(t, 8, lines)
			}
		})
	}
}

func TestSteadyConnectionResetsBackoff(t *testing.T) {
	errRefused := status.Error(codes.Unauthenticated, "not you")
	for lasted, want := range map[time.Duration]time.Duration{
		9 * time.Second: 16 * time.Second, time.Minute: 500 * time.Millisecond,
	} {
		withFakeClock(t, func(t *testing.T, o *fixture) {
			c, _ := o.refuse(<-o.principal.calls, errRefused, 5)
			c.greet(t)
			after(lasted)
			_, waits := o.refuse(c, errRefused, 1)
			requireJittered(t, want, waits[0])
		})
	}
}

// A principal that is too busy to answer is not called more often for that.
func TestUnansweredHelloIsNoConnection(t *testing.T) {
	withFakeClock(t, func(t *testing.T, o *fixture) {
		want := 500 * time.Millisecond
		c := <-o.principal.calls
		for range 8 {
			<-c.Context().Done()
			require.Equal(t, 10*time.Second, time.Since(c.at))
			ended := time.Now()
			synctest.Wait()
			require.ErrorContains(t, o.Connected(), "did not answer the hello")
			c = <-o.principal.calls
			requireJittered(t, want, c.at.Sub(ended))
			want = min(2*want, 30*time.Second)
		}
		require.Zero(t, o.metric(t, "argocd_agent_connections_total"))
	})
}

// Two agents of one name that both insisted would drive each other away for ever, every few seconds.
func TestSupersededAgentBacksOff(t *testing.T) {
	withFakeClock(t, func(t *testing.T, o *fixture) {
		c := <-o.principal.calls
		for _, minutes := range []int{1, 2, 4, 8, 15, 15, 15} {
			want := time.Duration(minutes) * time.Minute
			c.greet(t)
			after(want) // that long the other one stays away
			var waits []time.Duration
			c, waits = o.refuse(c, errSuperseded, 1)
			requireJittered(t, want, waits[0])
			require.ErrorContains(t, o.Connected(), "another agent connected by the same name")
		}
		require.Equal(t, 1, strings.Count(o.log.String(), "level=ERROR"), "it is said once")
		require.Contains(t, o.log.String(), `msg="Principal serves another agent of this name; retrying"`)
		require.Contains(t, o.log.String(), "another agent connected by the same name")
	})
}

// When the other one is gone for good, another that comes later is news again.
func TestSupersededAgentForgets(t *testing.T) {
	withFakeClock(t, func(t *testing.T, o *fixture) {
		c, _ := o.refuse(<-o.principal.calls, errSuperseded, 4)
		c.greet(t)
		after(31 * time.Minute)
		_, waits := o.refuse(c, errSuperseded, 1)
		requireJittered(t, time.Minute, waits[0])
		require.Equal(t, 2, strings.Count(o.log.String(), "level=ERROR"))
	})
}

// That a principal cannot be reached has nothing to do with agents of the same name.
func TestSupersededAgentRetriesOtherFailuresAsEver(t *testing.T) {
	withFakeClock(t, func(t *testing.T, o *fixture) {
		c, _ := o.refuse(<-o.principal.calls, errSuperseded, 4)
		_, waits := o.refuse(c, errAway, 1)
		requireJittered(t, 500*time.Millisecond, waits[0])
	})
}

// An agent whose connection breaks without the principal's noticing supersedes itself. That is no reason to stay away.
func TestAgentThatSupersedesItselfIsConnected(t *testing.T) {
	withFakeClock(t, func(t *testing.T, o *fixture) {
		broken := <-o.principal.calls
		broken.greet(t)
		after(time.Minute)
		o.cut()
		cut := time.Now()
		c := <-o.principal.calls
		requireJittered(t, 500*time.Millisecond, c.at.Sub(cut))
		require.NoError(t, broken.Context().Err(), "the principal knows nothing")
		c.greet(t)
		broken.end(errSuperseded)
		after(time.Hour)
		require.NoError(t, o.Connected())
		require.NotContains(t, o.log.String(), "another agent")
	})
}

func TestNewCertificateIsShownSoon(t *testing.T) {
	withFakeClock(t, func(t *testing.T, o *fixture) {
		c := <-o.principal.calls
		for range 5 {
			c.greet(t)
			after(time.Second)
			renewed := time.Now()
			o.renew()
			<-c.Context().Done()
			c = <-o.principal.calls
			require.LessOrEqual(t, c.at.Sub(renewed), 5*time.Second+distance)
		}
		require.NotContains(t, o.log.String(), "Connection to principal failed")
	})
}

// A certificate that is renewed while there is no connection is shown by the next one anyway.
func TestNewCertificateWhileNotConnected(t *testing.T) {
	withFakeClock(t, func(t *testing.T, o *fixture) {
		c := <-o.principal.calls
		c.end(errAway)
		synctest.Wait()
		o.renew()
		c = <-o.principal.calls
		c.greet(t)
		after(time.Hour)
		require.NoError(t, o.Connected())
		require.NoError(t, c.Context().Err())
	})
}

// Whatever the agent does, it stops at once when its context ends, and the principal sees that.
func TestEnd(t *testing.T) {
	for name, until := range map[string]func(t *testing.T, o *fixture) *call{
		"while it waits for an answer to its hello": func(_ *testing.T, o *fixture) *call { return <-o.principal.calls },
		"while it is connected": func(t *testing.T, o *fixture) *call {
			c := <-o.principal.calls
			c.greet(t)
			after(time.Second)
			return c
		},
		"while it waits before it tries again": func(_ *testing.T, o *fixture) *call {
			c := <-o.principal.calls
			c.end(errAway)
			synctest.Wait()
			return c
		},
		"while a new certificate waits to be shown": func(t *testing.T, o *fixture) *call {
			c := <-o.principal.calls
			c.greet(t)
			o.renew()
			return c
		},
	} {
		t.Run(name, func(t *testing.T) {
			withFakeClock(t, func(t *testing.T, o *fixture) {
				c := until(t, o)
				began := time.Now()
				o.stop()
				require.Zero(t, time.Since(began))
				<-c.Context().Done()
			})
		})
	}
}

// A network that answers nothing does not keep the agent from ending.
func TestEndWhileTheNetworkHangs(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		dialled := make(chan struct{}, 100)
		renewed, _ := renewal()
		o := newFixture("passthrough:principal", renewed, insecure.NewCredentials(), func(ctx context.Context, _ string) (net.Conn, error) {
			dialled <- struct{}{}
			<-ctx.Done()
			return nil, ctx.Err()
		})
		o.run(t)
		<-dialled
		began := time.Now()
		o.stop()
		require.Zero(t, time.Since(began))
	})
}
