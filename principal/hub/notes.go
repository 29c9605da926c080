package hub

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/argocd"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/converge"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/facets"
)

const (
	// noteAfter is how long an application is in nobody's hands before its condition says so: its agent may be about to
	// connect, and another principal or a controller on the hub about to report on it.
	noteAfter = 5 * time.Second
	// awayAfter is how long an agent is away before its applications say so. A restart or a short outage writes nothing.
	awayAfter = time.Minute
)

// presence remembers which agents are connected. Those that neither have been since this principal started nor have a cluster Secret
// are not in it.
type presence struct {
	mu     sync.Mutex
	agents map[string]present // Guarded by mu
}

type present struct {
	connected bool
	since     time.Time
	// never says that the agent has a cluster Secret, since then, and has not been connected.
	never bool
}

// get returns whether an agent is connected, false if nothing is known of it.
func (p *presence) get(agent string) (present, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	a, ok := p.agents[agent]
	return a, ok
}

// refresh notes whether an agent is connected now, and reports that, whether it changed, and whether the agent has been connected before.
func (p *presence) refresh(agent string, session func(agent string) (string, bool)) (connected, changed, seen bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	before, known := p.agents[agent]
	_, connected = session(agent)
	seen = known && !before.never
	if changed = connected != before.connected; changed {
		p.agents[agent] = present{connected: connected, since: time.Now()}
	}
	return connected, changed, seen
}

// expect notes that an agent has a cluster Secret, or not any more, and reports whether that is all that is known of it.
func (p *presence) expect(agent string, hasCluster bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	a, known := p.agents[agent]
	switch {
	case !known && hasCluster:
		p.agents[agent] = present{since: time.Now(), never: true}
	case a.never && !hasCluster:
		delete(p.agents, agent)
	}
	return !known && hasCluster
}

// ConnectionChanged says that an agent's session began or ended, at any principal of the hub, or moved to another one; or, for the empty
// name, that there are other principals than before. It does not block.
func (h *Hub) ConnectionChanged(agent string) {
	if agent == "" {
		h.notes.ChangedAgent(everybody, noteAfter)
		return
	}
	connected, changed, seen := h.presence.refresh(agent, h.options.Session)
	if connected {
		h.options.Directory.SetNamespace(agent, h.namespaceOf(agent))
	}
	if changed && !seen {
		h.notes.ChangedAgent(everybody, noteAfter)
	}
	if connected {
		h.notes.ChangedAgent(agent, 0)
	} else {
		h.notes.ChangedAgent(agent, awayAfter)
	}
}

// everybody stands for all agents in the queue of notes: no agent has that name. Many that connect at once are one look.
const everybody = "*"

// noteAgent has the conditions of an agent's applications written or taken back, if they have to be.
func (h *Hub) noteAgent(agent string) {
	if agent == everybody {
		h.noteAll()
		return
	}
	if at, expected := h.presence.get(agent); expected && !at.connected && !at.never {
		if left := awayAfter - time.Since(at.since); left > 0 { // it has been back meanwhile
			h.notes.ChangedAgent(agent, left)
			return
		}
	}
	for app := range h.cluster.Store.Group(agent) {
		h.notes.Changed(app, 0)
	}
}

// noteAll looks at all applications, when it is known or has changed which agents there are.
func (h *Hub) noteAll() {
	for app := range h.cluster.Store.All() {
		h.notes.Changed(app, noteAfter)
	}
}

// wantNote returns what the principal's own condition of an application says, empty for none, and whether it is worth an Event.
//
// Of principals that are alike, one leads. It must be right beside others on the same hub: principals with another mapping or label
// selector, and Argo CD's controller.
// None of them knows of the other. So each principal writes, and clears, only the condition of its own mapping, and writes it
// only if nobody can have the application but its own agents:
//
//  1. Nothing is changed of what another selector shares, nor before it is known which agents there are. Nothing is said of what
//     shows an autonomous agent's.
//  2. An application of one of this principal's agents is served, unless its destination names another agent than the namespace: then
//     neither gets it, see isCrossed. The note says so, or that the agent has been away for a while. An agent is only away for
//     the principal that it was connected to, or that expects it, because it has a cluster Secret.
//  3. Any other is noted only while it has no status, because whoever has it reports one, and only if its destination can be
//     nobody else's: with mapping by namespace one of this principal's agents, or none, or the namespace's own name; with
//     mapping by destination any that is no agent, unless the namespace is one. What is in a namespace that is not allowed is
//     never noted.
//
// The condition goes as soon as that changes, by the same rules. An Event is written when it is set, and never again.
func (h *Hub) wantNote(app *argocd.App) (says string, event bool) {
	agent, allowed := h.options.Mapping.Agent(app.Name, app.Destination())
	switch {
	case !h.unmanaged.isStarted():
		return h.note.Of(app), false
	case !h.options.Leads(agent): // another principal like this one writes it
		return h.note.Of(app), false
	case !h.cluster.Selects(&app.Head): // another principal of this mapping may have it, and its note is that one's
		return h.note.Of(app), false
	case agent == "" || app.SourceUID() != "" || app.Annotations[argocd.AnnotationAgent] != "", h.autonomous(agent):
		return "", false
	case h.isOurs(agent) && allowed:
		return h.noteServed(app, agent)
	case app.Status.Version != (argocd.Status{}).Version: // somebody has it, who knows better
		return h.note.Of(app), false
	case h.options.Mapping.HubNamespace(agent) != "":
		return h.noteNamespace(app, agent)
	default:
		return h.noteDestination(app, agent)
	}
}

// noteServed returns what is said of an application of an agent.
func (h *Hub) noteServed(app *argocd.App, agent string) (says string, event bool) {
	at, expected := h.presence.get(agent)
	away := expected && !at.connected && time.Since(at.since) >= awayAfter
	switch {
	case away && app.Deleting:
		return fmt.Sprintf("agent %q is not connected, and this deletion waits for it; without the finalizers it is over at once, "+
			"and what was deployed stays on the agent's cluster", agent), false
	case h.isCrossed(app, agent):
		return fmt.Sprintf(crossed+"nothing of it changes on either until both name one: create it in namespace %q, or correct the destination",
			agent, app.Destination(), app.Destination()), true
	case away:
		return fmt.Sprintf("agent %q is not connected: what is shown is the last known state, and changes wait for the agent", agent), false
	case !expected || !at.connected: // what was said before a restart, or before the agent was back for a moment, is still true
		if said := h.note.Of(app); strings.HasPrefix(said, fmt.Sprintf("agent %q is not connected", agent)) {
			return said, false
		}
	}
	return "", false
}

// crossed begins the note of an application whose namespace and destination name two agents.
const crossed = "no agent gets this application: its namespace is that of agent %q, and its destination names agent %q; "

// isCrossed reports whether an application in the namespace of one agent names another for its destination. Its author means one of the
// two, and nobody knows which. It goes to neither; what the agent of the namespace has of it from before stays as it is. What
// was said before a restart is still true until the other agent is back.
func (h *Hub) isCrossed(app *argocd.App, agent string) bool {
	destination := app.Destination()
	if h.options.Mapping.HubNamespace(agent) == "" || destination == "" || destination == agent {
		return false
	}
	return h.isConnectedManaged(destination) ||
		h.options.Clusters.Has(destination) && strings.HasPrefix(h.note.Of(app), fmt.Sprintf(crossed, agent, destination))
}

// withholds returns what reports whether nothing is to be sent to a managed agent of the application under a key.
func (h *Hub) withholds(agent string) func(converge.Key) bool {
	return func(key converge.Key) bool {
		place, err := h.options.Mapping.ToHub(agent, key)
		if err != nil {
			return false
		}
		app, ok := h.cluster.Store.Get(place)
		return ok && h.isCrossed(app, agent)
	}
}

// noteNamespace returns what is said of an application in a namespace of no agent, with mapping by namespace.
func (h *Hub) noteNamespace(app *argocd.App, namespace string) (says string, event bool) {
	switch destination := app.Destination(); {
	case h.isConnectedManaged(destination):
		return fmt.Sprintf("no agent gets this application: an agent gets those in the namespace of its name, and this is namespace %q; "+
			"for agent %q, which the destination names, create it in namespace %q", namespace, destination, destination), true
	case namespace == h.options.Namespace || h.isOurs(namespace):
		return "", false // it is the hub's own, or its namespace is an agent's that --allowed-namespaces excludes
	case destination == "" || destination == argocd.InCluster || destination == namespace:
		return fmt.Sprintf("no agent gets this application: no agent %q, after whose name its namespace is meant to be, has connected or has a "+
			"cluster Secret; create it in the namespace of an agent, or set up the agent by argocd-agentctl agent create %s", namespace, namespace), true
	default:
		return "", false
	}
}

// noteDestination returns what is said of an application whose destination is no agent, with mapping by destination. What is in
// a namespace that is not allowed may be another controller's, and only the log names it.
func (h *Hub) noteDestination(app *argocd.App, agent string) (says string, event bool) {
	if h.isOurs(agent) || h.isOurs(app.Name.Namespace) {
		return "", false // in a namespace of an agent's, it may be another principal's, with mapping by namespace
	}
	return fmt.Sprintf("no agent gets this application: its destination %q is no agent that has connected or has a cluster Secret, "+
		"and no controller has reported on it; correct the destination, or set up the agent by argocd-agentctl agent create %s", agent, agent), true
}

// isOurs reports whether a name is that of an agent that has connected to this principal, or has a cluster Secret.
func (h *Hub) isOurs(name string) bool {
	_, expected := h.presence.get(name)
	return expected || h.isAgent(name) || h.options.Clusters.Has(name)
}

// isConnectedManaged reports whether a name is that of a managed agent that is connected, or has connected to this principal.
func (h *Hub) isConnectedManaged(name string) bool {
	if mode, connected := h.options.Session(name); connected {
		return mode == string(facets.Managed)
	}
	share, connected := h.share(name)
	_, managed := share.Sources[facets.Application]
	return connected && managed
}
