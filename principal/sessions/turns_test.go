package sessions_test

import (
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/bubble"
)

// comes has an agent connect, and returns nil if it is served, and else how the principal refuses it.
func (o *fixture) comes(t *testing.T, name string) error {
	t.Helper()
	a, ended := o.callConnect(t, name, time.Hour)
	if err := a.SendHello(hello()); err != nil {
		return err
	}
	if _, err := a.RecvHello(); err == nil {
		return nil
	}
	return <-ended
}

// All agents of a hub that come back at once are taken in at the rate that a principal serves: some at once, some after a moment in which
// they hear nothing, and the others when they were told to come, each at a time of its own.
func TestAgentsThatComeAtOnceAreTakenInAtARate(t *testing.T) {
	const agents, perSecond = 100, 10
	bubble.Test(t, func(t *testing.T) {
		o := newFixture(t, perSecond)
		o.run(t)
		began := time.Now()
		served, told := make(chan time.Duration, agents), make(chan time.Duration, agents)
		for i := range agents {
			go func() {
				for name := "agent-" + strconv.Itoa(i); ; {
					err := o.comes(t, name) //nolint:testifylint // it fails only if the test's own CA does
					if err == nil {
						served <- time.Since(began)
						return
					}
					after := toldIn(err)
					if after <= 0 {
						t.Errorf("the agent was not told when to come: %v", err)
						served <- 0
						return
					}
					told <- after
					<-time.After(after)
				}
			}()
		}
		var at []time.Duration
		for range agents {
			at = append(at, <-served)
		}
		slices.Sort(at)
		for i, when := range at {
			require.GreaterOrEqual(t, when, time.Duration(max(i-perSecond, 0))*time.Second/perSecond, "agent %d", i)
		}
		require.LessOrEqual(t, at[agents-1], time.Duration(agents)*time.Second/perSecond+2*time.Second, "no time is lost")
		require.Len(t, told, agents-2*perSecond, "whoever comes when it was told to is served")
		close(told)
		different := make(map[time.Duration]bool)
		for after := range told {
			different[after] = true
		}
		require.Len(t, different, agents-2*perSecond)
		require.EqualValues(t, agents-2*perSecond, o.metric(t, "argocd_principal_agent_connections_deferred_total"))
		synctest.Wait()
	})
}

// toldIn returns in what time an agent is to come, no time if it was not told so.
func toldIn(err error) time.Duration {
	for _, detail := range status.Convert(err).Details() {
		if info, ok := detail.(*errdetails.RetryInfo); ok && status.Code(err) == codes.ResourceExhausted {
			return info.GetRetryDelay().AsDuration()
		}
	}
	return 0
}

// However many come, none is told to come later than agents wait.
func TestNobodyIsToldToComeTooLate(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		o := newFixture(t, 1)
		o.run(t)
		require.NoError(t, o.comes(t, "first"))
		require.NoError(t, o.comes(t, "held"))
		go func() { _ = o.comes(t, "takes-the-next-turn") }() //nolint:testifylint // as above
		synctest.Wait()
		for i := range 300 {
			after := toldIn(o.comes(t, "agent-"+strconv.Itoa(i)))
			require.Greater(t, after, time.Second)
			require.LessOrEqual(t, after, 2*time.Minute+time.Second)
		}
	})
}
