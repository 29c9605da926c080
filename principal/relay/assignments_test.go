package relay_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/principal/relay/relaytest"
)

// Agents whose applications are told of one by one.
const (
	one     = relaytest.ByName + "-one"
	another = relaytest.ByName + "-another"
)

// assign makes an application be an agent's, and says so.
func assign(w *relaytest.Works, instance string, was, is string) {
	w.Directory.Assign(instance, is)
	w.Exchange.Reassigned(instance, was, is)
}

// untilOwners takes news in until applications are exactly those agents'.
func (n *news) untilOwners(t *testing.T, want map[string]string) {
	t.Helper()
	n.until(t, func() bool { return fmt.Sprint(n.owners) == fmt.Sprint(want) })
}

func TestComponentsAreToldWhoseApplicationsAre(t *testing.T) {
	w := relaytest.Open(t)
	w.Exchange.Cluster(one, "https://one")
	assign(w, "shop", "", one)
	n := watch(t, w)
	n.untilOwners(t, map[string]string{"shop": one})
	require.Equal(t, "shop", n.there["shop"])

	assign(w, "team_shop", "", one)
	n.untilOwners(t, map[string]string{"shop": one, "team_shop": one})
	w.Exchange.Cluster(another, "https://another")
	assign(w, "shop", one, another)
	n.untilOwners(t, map[string]string{"shop": another, "team_shop": one})
	assign(w, "shop", another, "")
	n.untilOwners(t, map[string]string{"team_shop": one})
}

// In a hybrid installation most destinations are nobody's. What is for them is not told of.
func TestOnlyAgentsThatAreKnownHaveApplications(t *testing.T) {
	w := relaytest.Open(t)
	assign(w, "shop", "", another)
	n := watch(t, w)
	n.until(t, func() bool { return n.agents["a"] != nil })
	assign(w, "bakery", "", another)
	w.Exchange.Cluster(one, "https://one")
	n.until(t, func() bool { return n.agents[one] != nil })
	require.Empty(t, n.mentioned, "nobody is to hear of applications that concern no agent")

	w.Exchange.Cluster(another, "https://another")
	n.untilOwners(t, map[string]string{"shop": another, "bakery": another})
	w.Exchange.NoCluster(another)
	n.untilOwners(t, map[string]string{})

	conn := w.Dial(t, another) // no Secret, but there it is
	defer conn.Close()
	listen(t, conn)
	n.untilOwners(t, map[string]string{"shop": another, "bakery": another})
}

// That an agent is autonomous, and has a namespace of its own on the hub, may be known later than the agent.
func TestAgentMayTurnOutToHaveANamespace(t *testing.T) {
	w := relaytest.Open(t)
	w.Exchange.Cluster(one, "https://one")
	assign(w, one+"_shop", "", one)
	n := watch(t, w)
	n.untilOwners(t, map[string]string{one + "_shop": one})
	require.Empty(t, n.agents[one].GetNamespace())
	w.Directory.House(one)
	w.Exchange.Rehoused(one)
	n.untilOwners(t, map[string]string{})
	n.until(t, func() bool { return n.agents[one].GetNamespace() == one })
}

func TestManyAssignmentsAreToldInSeveralMessages(t *testing.T) {
	w := relaytest.Open(t)
	w.Exchange.Cluster(one, "https://one")
	const count = 10_000
	name := func(i int) string {
		return fmt.Sprintf("%s_%s-%05d", strings.Repeat("n", 63), strings.Repeat("a", 200), i)
	}
	for i := range count {
		assign(w, name(i), "", one)
	}
	n := watch(t, w)
	messages := 0
	for more := true; more; messages++ {
		said := n.hear(t)
		require.Less(t, proto.Size(said), 5<<19)
		more = said.GetMore()
	}
	require.Greater(t, messages, 4)
	require.Len(t, n.owners, count)

	w.Exchange.NoCluster(one)
	for len(n.owners) > 0 {
		said := n.hear(t)
		require.Less(t, proto.Size(said), 5<<19)
		require.False(t, said.GetMore(), "changes are each for itself")
	}
}
