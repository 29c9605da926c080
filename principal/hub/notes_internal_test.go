package hub

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/argocd"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/converge"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/facets"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/mapping"
)

// withStatus writes an application with a status.
func (h *Hub) withStatus(t *testing.T, r *revision, place, destination, status string) *argocd.App {
	t.Helper()
	meta := r.of("", nil)
	meta.Namespace, meta.Name, _ = strings.Cut(place, "/")
	app, err := h.cluster.Store.RecordWrite(&argocd.Application{
		ObjectMeta: meta, Spec: fmt.Appendf(nil, `{"destination":{"name":%q}}`, destination), Status: []byte(status),
	})
	require.NoError(t, err)
	return app
}

const synced = `{"sync":{"status":"Synced"}}`

// An application that no agent gets says why; one that somebody else may have does not.
func TestApplicationsOfNoAgentSayWhy(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		mapping                    mapping.Mapping
		place, destination, status string
		want                       string
	}{
		{place: "argocd/habit", destination: "paris", want: `for agent "paris", which the destination names, create it in namespace "paris"`},
		{place: "kitchen/habit", destination: "paris", want: `this is namespace "kitchen"`},
		{place: "berlim/shop", destination: "in-cluster", want: `no agent "berlim", after whose name its namespace is meant to be`},
		{place: "berlim/shop", destination: "berlim", want: `argocd-agentctl agent create berlim`},
		{place: "berlim/shop", destination: "", want: `no agent "berlim"`},
		{place: "berlim/shop", destination: "in-cluster", status: synced}, // the hub's own controller has it
		{place: "argocd/habit", destination: "paris", status: synced},     // as above
		{place: "team-a/shop", destination: "berlin"},                     // another principal may serve that agent
		{place: "team-a/shop", destination: "push"},                       // a cluster that the hub reaches itself
		{place: "argocd/own", destination: "in-cluster"},                  // the hub's own
		{place: "berlin/shop", destination: "in-cluster"},                 // its agent has not connected yet
		{place: "paris/shop", destination: "in-cluster", status: synced},  // served
		{place: "paris/shop", destination: "paris"},                       // served
		{place: "paris/shop", destination: "berlin"},                      // berlin may be another principal's
		{place: "paris/shop", destination: "rome"},                        // no managed agent
		{place: "rome/shop", destination: "paris"},                        // an autonomous agent's namespace
		{place: "paris/crossed", destination: "oslo", status: synced, want: `its namespace is that of agent "paris", and its destination names agent "oslo"`},
		{place: "oslo/crossed", destination: "paris", want: `create it in namespace "paris", or correct the destination`},

		{mapping: byDestination(), place: "argocd/shop", destination: "berlim", want: `its destination "berlim" is no agent`},
		{mapping: byDestination(), place: "kitchen/shop", destination: "berlim", want: `its destination "berlim" is no agent`},
		{mapping: byDestination(), place: "kitchen/shop", destination: "paris"}, // another controller may look after that namespace
		{mapping: byDestination(), place: "argocd/shop", destination: "berlim", status: synced},
		{mapping: byDestination(), place: "berlin/shop", destination: "berlim"}, // its namespace is an agent's
		{mapping: byDestination(), place: "rome/shop", destination: "berlim"},   // as above
		{mapping: byDestination(), place: "kitchen/shop", destination: "berlin"},
		{mapping: byDestination(), place: "argocd/shop", destination: "in-cluster"},
		{mapping: byDestination(), place: "argocd/shop", destination: ""},
		{mapping: byDestination(), place: "team-a/shop", destination: "paris"},
	} {
		if c.mapping == nil {
			c.mapping = mapping.ByNamespace{}
		}
		name := c.mapping.Name() + " " + c.place + " " + c.destination
		h, _ := newTestHubWithMapping(t, c.mapping)
		h.connect("paris", facets.Managed)
		h.connect("oslo", facets.Managed)
		h.connect("rome", facets.Autonomous)
		for _, agent := range []string{"paris", "oslo", "rome"} {
			h.setConnected(agent, true)
		}
		var r revision
		app := h.withStatus(t, &r, c.place, c.destination, c.status)
		says, _ := h.wantNote(app)
		require.Empty(t, says, "who knows what agents there are")
		h.StartupDone()
		says, event := h.wantNote(app)
		require.Equal(t, c.want == "", says == "", "%s: %s", name, says)
		require.Contains(t, says, c.want, name)
		require.Equal(t, c.want != "", event, name)
		app = h.writeApplication(t, &r, c.place, c.destination, ignored)
		says, _ = h.wantNote(app)
		require.Empty(t, says, "%s: it is not shared", name)
	}
}

// Of two principals with different mappings on one hub each knows its own conditions.
func TestPrincipalsLeaveEachOthersConditions(t *testing.T) {
	t.Parallel()
	byNamespace, _ := newTestHub(t)
	other, _ := newTestHubWithMapping(t, byDestination())
	var r, s revision
	status := `{"conditions":[{"type":"AgentError","message":"Mapping by namespace: of no agent"},{"type":"AgentError","message":"The spoke refuses this application: x"}]}`
	app := byNamespace.withStatus(t, &r, "team-a/shop", "berlin", status)
	require.Equal(t, "of no agent", byNamespace.note.Of(app))
	require.Zero(t, app.Status.Version, "that is no status of anybody's")
	require.Empty(t, other.note.Of(other.withStatus(t, &s, "team-a/shop", "berlin", status)))
}

// An agent that is away for a moment changes nothing; one that stays away is what its applications, and their deletions, wait for.
func TestApplicationsSayThatTheirAgentIsAway(t *testing.T) {
	t.Parallel()
	h, _ := newTestHub(t)
	h.connect("berlin", facets.Managed)
	h.StartupDone()
	var r revision
	app := h.withStatus(t, &r, "berlin/shop", "berlin", synced)
	want := func(is string) {
		t.Helper()
		says, event := h.wantNote(app)
		require.False(t, event, "ten thousand applications would have one each")
		require.Equal(t, is == "", says == "", says)
		require.Contains(t, says, is)
	}
	since := func(connected bool, ago time.Duration) {
		h.presence.agents["berlin"] = present{connected: connected, since: time.Now().Add(-ago)}
	}
	want("")
	h.setConnected("berlin", true)
	want("")
	h.setConnected("berlin", false)
	want("")
	since(false, awayAfter)
	want(`agent "berlin" is not connected: what is shown is the last known state`)
	h.Forget("berlin")
	want(`agent "berlin" is not connected`)

	// What a principal said before it was restarted stays until the agent is back.
	app = h.withStatus(t, &r, "berlin/shop", "berlin", `{"conditions":[{"type":"AgentError","message":"Mapping by namespace: agent \"berlin\" is not connected: x"}]}`)
	delete(h.presence.agents, "berlin")
	want(`agent "berlin" is not connected: x`)
	since(false, time.Second)
	want(`agent "berlin" is not connected: x`)
	since(true, time.Hour)
	want("")
}

// An agent that has a cluster Secret is expected. If it does not come, that is said too.
func TestApplicationsSayThatTheirAgentHasNotComeYet(t *testing.T) {
	t.Parallel()
	h, _ := newTestHub(t)
	h.StartupDone()
	var r revision
	app := h.withStatus(t, &r, "berlin/shop", "berlin", synced)
	h.SetCluster("berlin", "https://proxy")
	says, _ := h.wantNote(app)
	require.Empty(t, says, "it may be about to connect")
	h.presence.agents["berlin"] = present{since: time.Now().Add(-awayAfter), never: true}
	h.SetCluster("berlin", "https://proxy")
	says, _ = h.wantNote(app)
	require.Contains(t, says, `agent "berlin" is not connected`)
	h.setConnected("berlin", true)
	says, _ = h.wantNote(app)
	require.Empty(t, says)
	h.SetCluster("berlin", "https://proxy")
	says, _ = h.wantNote(app)
	require.Empty(t, says)
}

// Nobody knows which of two agents an application is meant for that is in the namespace of one and names the other. Neither gets it, nor
// loses what it has.
func TestCrossedApplicationsAreWithheld(t *testing.T) {
	t.Parallel()
	h, log := newTestHub(t)
	h.connect("paris", facets.Managed)
	h.connect("berlin", facets.Managed)
	h.StartupDone()
	sources := h.Sharing(time.Minute, func(string) converge.Observer { return nil })("paris", string(facets.Managed)).Sources
	withholds := func(want bool) {
		t.Helper()
		for _, f := range []converge.Facet{facets.Application, facets.Intent} {
			require.Equal(t, want, sources[f].Withholds("shop"))
		}
	}
	var r revision
	app := h.withStatus(t, &r, "paris/shop", "berlin", "")
	withholds(true)
	says, _ := h.wantNote(app)
	require.Contains(t, says, `no agent gets this application: its namespace is that of agent "paris", and its destination names agent "berlin"`)
	lines(log)
	h.logNote(app, says)
	require.Len(t, lines(log), 1)
	_, is := sources[facets.Application].Project("shop")
	require.True(t, is, "what paris has of it is not deleted")
	for _, destination := range []string{"paris", "in-cluster", "", "another"} {
		h.withStatus(t, &r, "paris/shop", destination, "")
		withholds(false)
	}

	h, _ = newTestHub(t) // that was restarted, and berlin has not come back yet
	h.connect("paris", facets.Managed)
	h.StartupDone()
	sources = h.Sharing(time.Minute, func(string) converge.Observer { return nil })("paris", string(facets.Managed)).Sources
	h.withStatus(t, &r, "paris/shop", "berlin", `{"conditions":[{"type":"AgentError","message":"Mapping by namespace: `+strings.ReplaceAll(says, `"`, `\"`)+`"}]}`)
	withholds(true)
	h.withStatus(t, &r, "paris/shop", "berlin", "")
	withholds(false)
}

// What the log says of a destination it does not say of each application.
func TestDestinationThatIsNoAgentIsLoggedOnce(t *testing.T) {
	t.Parallel()
	h, log := newTestHubWithMapping(t, byDestination())
	h.StartupDone()
	var r revision
	app := h.withStatus(t, &r, "argocd/shop", "berlim", "")
	h.explainApplication(app)
	says, _ := h.wantNote(app)
	h.logNote(app, says)
	require.Len(t, lines(log), 1)
}
