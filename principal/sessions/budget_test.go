package sessions_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/converge"
)

// comeAndGo has an agent connect, do something, and leave.
func (o *fixture) comeAndGo(t *testing.T, name string, do func(agent)) {
	t.Helper()
	a, ended := o.callConnect(t, name, 365*24*time.Hour)
	require.NoError(t, a.SendHello(hello()))
	_, err := a.RecvHello()
	require.NoError(t, err)
	do(a)
	synctest.Wait()
	a.hangUp()
	require.Error(t, <-ended)
	synctest.Wait()
}

func nothing(agent) {}

// An agent is forgotten that has no cluster Secret. What it has used up of its budget is not.
func TestBudgetOutlivesAConnection(t *testing.T) {
	withFakeClock(t, func(t *testing.T, o *fixture) {
		o.withoutCluster.Store(true)
		change := func(a agent) {
			for i := range 150 {
				require.NoError(t, a.Send(converge.ReplicaChanged{Facet: facet, Key: converge.Key(fmt.Sprint(i))}))
			}
		}
		o.comeAndGo(t, "a", change)
		require.Equal(t, "a", <-o.forgotten)
		o.comeAndGo(t, "b", change)
		require.Empty(t, o.reached, "a burst of 200 is left to each")
		o.comeAndGo(t, "a", change)
		require.Equal(t, "a: changes per second", <-o.reached)
	})
}

// Each connection costs a comparison. Who comes again and again waits, and nobody else does.
func TestAgentThatConnectsTooOftenIsRefused(t *testing.T) {
	withFakeClock(t, func(t *testing.T, o *fixture) {
		for range 60 {
			o.comeAndGo(t, "a", nothing)
		}
		for range 3 {
			_, ended := o.callConnect(t, "a", time.Hour)
			err := <-ended
			require.Equal(t, codes.ResourceExhausted, status.Code(err))
			require.ErrorContains(t, err, "the agent connects too often")
		}
		require.Equal(t, "a: connections per second", <-o.reached)
		require.Empty(t, o.reached, "once")
		o.comeAndGo(t, "b", nothing)
		<-time.After(time.Second)
		o.comeAndGo(t, "a", nothing)
	})
}

// A network that fails every second is nobody's fault.
func TestAgentWhoseConnectionsBreakOffIsServed(t *testing.T) {
	withFakeClock(t, func(t *testing.T, o *fixture) {
		for range 300 {
			o.comeAndGo(t, "a", nothing)
			<-time.After(time.Second)
		}
		require.Empty(t, o.reached)
	})
}

// Names that come once are not remembered for ever.
func TestUnusedBudgetsAreForgotten(t *testing.T) {
	withFakeClock(t, func(t *testing.T, o *fixture) {
		o.withoutCluster.Store(true)
		for i := range 300 {
			o.comeAndGo(t, fmt.Sprint("agent-", i), nothing)
		}
		require.Equal(t, 300, o.Budgets(), "what was used is remembered")
		<-time.After(2 * time.Minute)
		for i := range 300 {
			o.comeAndGo(t, fmt.Sprint("other-", i), nothing)
		}
		require.Less(t, o.Budgets(), 400)
	})
}
