package directory

import (
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	tunnelv1 "github.com/argocd-agent-mesh/argocd-agent-mesh/api/tunnel/v1"
)

// agent is an agent in an update.
func agent(name, namespace, server string) *tunnelv1.Agent {
	return &tunnelv1.Agent{Name: name, Namespace: namespace, Server: server}
}

// of is an update with agents.
func of(agents ...*tunnelv1.Agent) *tunnelv1.DirectoryUpdate {
	return &tunnelv1.DirectoryUpdate{Agents: agents}
}

// assigning is an update in which an application is an agent's.
func assigning(instance, agent, spokeInstance string) *tunnelv1.DirectoryUpdate {
	return &tunnelv1.DirectoryUpdate{Assigned: []*tunnelv1.Assignment{{Instance: instance, Agent: agent, SpokeInstance: spokeInstance}}}
}

// What goes from one agent to another stays with that when the first has lost it, in whichever order an update says so.
func TestUpdateMovesFromOneAgentToAnother(t *testing.T) {
	t.Parallel()
	for name, updates := range map[string][]*tunnelv1.DirectoryUpdate{
		"both at once": {
			of(agent("a", "one", "https://one"), agent("b", "two", "https://two")),
			of(agent("a", "two", "https://two"), agent("b", "one", "https://one")),
		},
		"the new one first": {
			of(agent("b", "one", "https://one")), of(agent("a", "two", "https://two"), agent("b", "one", "https://one")),
			of(agent("a", "two", "https://two")),
		},
		"and the old one goes": {
			of(agent("c", "two", "https://two")), of(agent("a", "two", "https://two"), agent("b", "one", "https://one")),
			{Removed: []string{"c"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := New(nil, nil, slog.New(slog.DiscardHandler))
			for _, update := range updates {
				d.apply(update)
			}
			for want, is := range map[string]string{"a": "two", "b": "one"} {
				a, ok := d.Server("https://" + is)
				require.True(t, ok)
				require.Equal(t, want, a.Name)
				owner, instance, ok := d.Owner(is + "_shop")
				require.True(t, ok)
				require.Equal(t, want+" shop", owner+" "+instance)
				hub, ok := d.Hub(want, "shop")
				require.True(t, ok)
				require.Equal(t, is+"_shop", hub)
			}
		})
	}
}

// An application that is renamed on the hub is found by its new name, though that comes before the old one is gone.
func TestUpdateRenamesAnApplication(t *testing.T) {
	t.Parallel()
	d := New(nil, nil, slog.New(slog.DiscardHandler))
	d.apply(assigning("old", "a", "shop"))
	d.apply(assigning("new", "a", "shop"))
	d.apply(&tunnelv1.DirectoryUpdate{Unassigned: []string{"old"}})
	hub, ok := d.Hub("a", "shop")
	require.True(t, ok)
	require.Equal(t, "new", hub)
}

// FuzzUpdate has a principal send any updates at all. What an agent gets by its instance on the spoke is what the hub says is its,
// and the address of a cluster leads to the agent that has it: nobody gets another's.
func FuzzUpdate(f *testing.F) {
	for _, updates := range [][2]*tunnelv1.DirectoryUpdate{
		{of(agent("a", "one", "https://one"), agent("b", "two", "https://two")), of(agent("a", "two", "https://two"), agent("b", "one", "https://one"))},
		{of(agent("a", "one", "s"), agent("b", "one", "s")), {Removed: []string{"b"}}},
		{of(agent("a", "one", ""), agent("b", "", "")), assigning("one_shop", "b", "shop")},
		{of(agent("a", "one", ""), agent("b", "one_two", "")), assigning("shop", "a", "two_shop")},
		{assigning("x", "a", "shop"), assigning("y", "a", "shop")},
		{of(agent("", "", ""), agent("", "_", "_")), {Removed: []string{"", "a"}, Unassigned: []string{"", "_"}, More: true}},
		{{Blocklist: &tunnelv1.Blocklist{Keys: []string{"", "agent.a", "*"}}}, {Agents: []*tunnelv1.Agent{nil, {}}}},
	} {
		var texts [2][]byte
		for i, update := range updates {
			text, err := proto.Marshal(update)
			require.NoError(f, err)
			texts[i] = text
		}
		f.Add(texts[0], texts[1])
	}
	f.Fuzz(func(t *testing.T, first, second []byte) {
		d := New(nil, nil, slog.New(slog.DiscardHandler))
		names, instances := map[string]bool{"a": true, "b": true, "": true}, map[string]bool{"shop": true, "two_shop": true, "": true}
		for i, text := range [][]byte{first, second} {
			update := &tunnelv1.DirectoryUpdate{}
			if proto.Unmarshal(text, update) != nil {
				return
			}
			if i == 0 {
				d.replace([]*tunnelv1.DirectoryUpdate{update})
			} else {
				d.apply(update)
			}
			for _, a := range update.GetAgents() {
				names[a.GetName()] = true
			}
			for _, a := range update.GetAssigned() {
				names[a.GetAgent()], instances[a.GetSpokeInstance()] = true, true
			}
			for name := range names {
				requireOwn(t, d, name, instances)
			}
		}
	})
}

// requireOwn checks that an agent has nothing of another's.
func requireOwn(t *testing.T, d *Directory, name string, instances map[string]bool) {
	t.Helper()
	for spokeInstance := range instances {
		hub, ok := d.Hub(name, spokeInstance)
		if !ok {
			continue
		}
		owner, instance, ok := d.Owner(hub)
		require.True(t, ok)
		require.Equal(t, name, owner)
		require.Equal(t, spokeInstance, instance)
	}
	a, ok := d.Agent(name)
	if !ok || a.Server == "" {
		return
	}
	by, ok := d.Server(a.Server)
	require.True(t, !ok || by.Server == a.Server)
}
