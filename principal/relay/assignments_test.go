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

// untilOwners takes news in until applications are exactly those agents'.
func (n *news) untilOwners(t *testing.T, want map[string]string) {
	t.Helper()
	n.until(t, func() bool { return fmt.Sprint(n.owners) == fmt.Sprint(want) })
}

func TestComponentsAreToldWhoseApplicationsAre(t *testing.T) {
	w := relaytest.Open(t)
	w.Directory.SetCluster(one, "https://one")
	w.Directory.Assign("shop", one, "shop")
	n := watch(t, w)
	n.untilOwners(t, map[string]string{"shop": one})
	require.Equal(t, "shop", n.there["shop"])

	w.Directory.Assign("team_shop", one, "team_shop")
	n.untilOwners(t, map[string]string{"shop": one, "team_shop": one})
	w.Directory.SetCluster(another, "https://another")
	w.Directory.Assign("shop", another, "shop")
	n.untilOwners(t, map[string]string{"shop": another, "team_shop": one})
	w.Directory.Unassign("shop")
	n.untilOwners(t, map[string]string{"team_shop": one})
}

// In a hybrid installation most destinations are nobody's. What is for them is not told of.
func TestOnlyAgentsThatAreKnownHaveApplications(t *testing.T) {
	w := relaytest.Open(t)
	w.Directory.Assign("shop", another, "shop")
	n := watch(t, w)
	n.until(t, func() bool { return n.agents["a"] != nil })
	w.Directory.Assign("bakery", another, "bakery")
	w.Directory.SetCluster(one, "https://one")
	n.until(t, func() bool { return n.agents[one] != nil })
	require.Empty(t, n.mentioned, "nobody is to hear of applications that concern no agent")

	w.Directory.SetCluster(another, "https://another")
	n.untilOwners(t, map[string]string{"shop": another, "bakery": another})
	w.Directory.RemoveCluster(another)
	n.untilOwners(t, map[string]string{})

	conn := w.Dial(t, another) // no Secret, but there it is
	defer conn.Close()
	listen(t, conn)
	n.untilOwners(t, map[string]string{"shop": another, "bakery": another})
}

// That an agent is autonomous, and has a namespace of its own on the hub, may be known later than the agent.
func TestAgentMayTurnOutToHaveANamespace(t *testing.T) {
	w := relaytest.Open(t)
	w.Directory.SetCluster(one, "https://one")
	w.Directory.Assign(one+"_shop", one, "shop")
	n := watch(t, w)
	n.untilOwners(t, map[string]string{one + "_shop": one})
	require.Empty(t, n.agents[one].GetNamespace())
	w.Directory.SetNamespace(one, one)
	n.untilOwners(t, map[string]string{})
	n.until(t, func() bool { return n.agents[one].GetNamespace() == one })
	w.Directory.SetNamespace(one, "")
	n.untilOwners(t, map[string]string{one + "_shop": one})
	n.until(t, func() bool { return n.agents[one].GetNamespace() == "" })
}

func TestManyAssignmentsAreToldInSeveralMessages(t *testing.T) {
	w := relaytest.Open(t)
	w.Directory.SetCluster(one, "https://one")
	const count = 10_000
	name := func(i int) string {
		return fmt.Sprintf("%s_%s-%05d", strings.Repeat("n", 63), strings.Repeat("a", 200), i)
	}
	for i := range count {
		w.Directory.Assign(name(i), one, name(i))
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

	w.Directory.RemoveCluster(one)
	for len(n.owners) > 0 {
		said := n.hear(t)
		require.Less(t, proto.Size(said), 5<<19)
		require.False(t, said.GetMore(), "changes are each for itself")
	}
}
