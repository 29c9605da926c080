package relay_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/principal/relay/relaytest"
)

// Agents without a namespace of their own.
const (
	one     = relaytest.ByName + "-one"
	another = relaytest.ByName + "-another"
)

// untilOwners takes in updates until exactly these agents own these applications.
func (c *component) untilOwners(t *testing.T, want map[string]string) {
	t.Helper()
	c.until(t, func() bool { return fmt.Sprint(c.owners) == fmt.Sprint(want) })
}

func TestDirectorySendsAssignments(t *testing.T) {
	w := relaytest.Open(t)
	w.Directory.SetCluster(one, "https://one")
	w.Directory.Assign("shop", one, "shop")
	seen := watch(t, w)
	seen.untilOwners(t, map[string]string{"shop": one})
	require.Equal(t, "shop", seen.spokeInstances["shop"])

	w.Directory.Assign("team_shop", one, "team_shop")
	seen.untilOwners(t, map[string]string{"shop": one, "team_shop": one})
	w.Directory.SetCluster(another, "https://another")
	w.Directory.Assign("shop", another, "shop")
	seen.untilOwners(t, map[string]string{"shop": another, "team_shop": one})
	w.Directory.Unassign("shop")
	seen.untilOwners(t, map[string]string{"team_shop": one})
}

// In a hybrid installation most destinations are no agents.
func TestAssignmentsToUnknownAgentsAreNotSent(t *testing.T) {
	w := relaytest.Open(t)
	w.Directory.Assign("shop", another, "shop")
	seen := watch(t, w)
	seen.until(t, func() bool { return seen.agents["a"] != nil })
	w.Directory.Assign("bakery", another, "bakery")
	w.Directory.SetCluster(one, "https://one")
	seen.until(t, func() bool { return seen.agents[one] != nil })
	require.Empty(t, seen.mentioned, "applications that belong to no agent are no component's business")

	w.Directory.SetCluster(another, "https://another")
	seen.untilOwners(t, map[string]string{"shop": another, "bakery": another})
	w.Directory.RemoveCluster(another)
	seen.untilOwners(t, map[string]string{})

	conn := w.ClientConn(t, another) // no Secret, but there it is
	defer conn.Close()
	listen(t, conn)
	seen.untilOwners(t, map[string]string{"shop": another, "bakery": another})
}

// Whether an agent is autonomous, and so has a namespace of its own on the hub, is known when it connects.
func TestNamespaceOfAgentReplacesItsAssignments(t *testing.T) {
	w := relaytest.Open(t)
	w.Directory.SetCluster(one, "https://one")
	w.Directory.Assign(one+"_shop", one, "shop")
	seen := watch(t, w)
	seen.untilOwners(t, map[string]string{one + "_shop": one})
	require.Empty(t, seen.agents[one].GetNamespace())
	w.Directory.SetNamespace(one, one)
	seen.untilOwners(t, map[string]string{})
	seen.until(t, func() bool { return seen.agents[one].GetNamespace() == one })
	w.Directory.SetNamespace(one, "")
	seen.untilOwners(t, map[string]string{one + "_shop": one})
	seen.until(t, func() bool { return seen.agents[one].GetNamespace() == "" })
}

func TestManyAssignmentsAreSentInSeveralMessages(t *testing.T) {
	w := relaytest.Open(t)
	w.Directory.SetCluster(one, "https://one")
	const count = 10_000
	name := func(i int) string {
		return fmt.Sprintf("%s_%s-%05d", strings.Repeat("n", 63), strings.Repeat("a", 200), i)
	}
	for i := range count {
		w.Directory.Assign(name(i), one, name(i))
	}
	seen := watch(t, w)
	messages := 0
	for more := true; more; messages++ {
		update := seen.receive(t)
		require.Less(t, proto.Size(update), 5<<19)
		more = update.GetMore()
	}
	require.Greater(t, messages, 4)
	require.Len(t, seen.owners, count)

	w.Directory.RemoveCluster(one)
	for len(seen.owners) > 0 {
		update := seen.receive(t)
		require.Less(t, proto.Size(update), 5<<19)
		require.False(t, update.GetMore(), "only the first update has several parts")
	}
}
