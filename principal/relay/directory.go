package relay

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	tunnelv1 "github.com/argocd-agent-mesh/argocd-agent-mesh/api/tunnel/v1"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/signal"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/blocklist"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/peers"
)

// Directory holds which agents there are and which of the hub's applications belong to which agent. Whoever follows the hub
// writes to it, and the relay sends the changes to the hub's components. It depends on nothing, so it can be made first. An
// application is known by its instance, which is its name in Argo CD's Redis keys.
//
// An agent is in it while it is connected or has a cluster Secret. All text must be UTF-8: components get it in protobuf
// strings, and one bad string would keep them from all other agents.
type Directory struct {
	namespaceOf func(agent string) string
	roster      *peers.Roster
	started     time.Time
	complete    chan struct{} // closed by SetComplete

	mu          sync.Mutex
	agents      map[string]agentState
	namespaces  map[string]string              // by agent, where namespaceOf does not apply. Guarded by mu
	assignments map[string]assignment          // by instance. Guarded by mu
	instances   map[string]map[string]struct{} // the same, by agent. Guarded by mu
	blocked     []string                       // the keys of the blocklist. Guarded by mu
	watchers    map[*watcher]struct{}          // Guarded by mu
}

// agentState is what is known of an agent. The zero value is that of an agent which does not exist.
type agentState struct {
	connected  bool
	seen       bool      // it has connected since the start
	since      time.Time // when connected last changed
	build      string
	holder     string // the ID of the principal that reaches it
	hasCluster bool   // there is a cluster Secret for it
	server     string
}

func (s agentState) exists() bool { return s.connected || s.hasCluster }

// assignment says which agent an application is meant for, and what its instance is called on the spoke.
type assignment struct{ agent, spokeInstance string }

// NewDirectory returns an empty directory. namespaceOf returns the namespace on the hub whose applications all belong to an
// agent, empty if there is none; SetNamespace overrides it. roster says which agents can be reached, here or through another principal;
// it must not be used before.
func NewDirectory(namespaceOf func(agent string) string, roster *peers.Roster) *Directory {
	d := &Directory{
		namespaceOf: namespaceOf, roster: roster, started: time.Now(), complete: make(chan struct{}), agents: make(map[string]agentState),
		namespaces: make(map[string]string), assignments: make(map[string]assignment),
		instances: make(map[string]map[string]struct{}), watchers: make(map[*watcher]struct{}),
	}
	roster.Subscribe(func(kind peers.Kind, agent string) {
		if kind == peers.Tunnel {
			d.refresh(agent)
		}
	})
	return d
}

// SetComplete says that the directory has everything that existed before the start. Components get no update before, because
// the first update replaces all that they knew. It must be called once at most.
func (d *Directory) SetComplete() { close(d.complete) }

// SetCluster records that an agent has a cluster Secret with that address.
func (d *Directory) SetCluster(agent, server string) {
	d.change(agent, func(s *agentState) { s.hasCluster, s.server = true, server })
}

// RemoveCluster records that an agent has no cluster Secret.
func (d *Directory) RemoveCluster(agent string) {
	d.change(agent, func(s *agentState) { s.hasCluster, s.server = false, "" })
}

// SetBlocked records the keys of the hub's blocklist.
func (d *Directory) SetBlocked(keys []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.blocked = keys
	for w := range d.watchers {
		w.blocked = true
	}
	d.notify("", maps.Keys(map[string]struct{}(nil)))
}

// Left records that a principal shuts down, this one or another, and that no agent is reached through it any more.
func (d *Directory) Left() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for w := range d.watchers {
		w.left = true
	}
	d.notify("", maps.Keys(map[string]struct{}(nil)))
}

// SetNamespace records the namespace on the hub whose applications all belong to an agent, empty if there is none.
func (d *Directory) SetNamespace(agent, namespace string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.namespace(agent) == namespace {
		return
	}
	if d.namespaces[agent] = namespace; namespace == d.namespaceOf(agent) {
		delete(d.namespaces, agent)
	}
	if d.agents[agent].exists() {
		d.notify(agent, maps.Keys(d.instances[agent]))
	}
}

// Assign records that an application is meant for an agent, which counts where the agent has no namespace of its own.
func (d *Directory) Assign(instance, agent, spokeInstance string) {
	d.assign(instance, assignment{agent, spokeInstance})
}

// Unassign records that an application is meant for no agent.
func (d *Directory) Unassign(instance string) { d.assign(instance, assignment{}) }

func (d *Directory) assign(instance string, now assignment) {
	d.mu.Lock()
	defer d.mu.Unlock()
	old := d.assignments[instance]
	if old == now {
		return
	}
	before := d.owner(instance)
	delete(d.assignments, instance)
	if delete(d.instances[old.agent], instance); len(d.instances[old.agent]) == 0 {
		delete(d.instances, old.agent)
	}
	if now.agent != "" {
		d.assignments[instance] = now
		if d.instances[now.agent] == nil {
			d.instances[now.agent] = make(map[string]struct{})
		}
		d.instances[now.agent][instance] = struct{}{}
	}
	if d.owner(instance) != before {
		d.notify("", slices.Values([]string{instance}))
	}
}

// namespace returns an agent's namespace on the hub. d.mu is held.
func (d *Directory) namespace(agent string) string {
	if namespace, ok := d.namespaces[agent]; ok {
		return namespace
	}
	return d.namespaceOf(agent)
}

// owner returns whose an application is if it is some agent's whose namespace does not say so already. d.mu is held.
func (d *Directory) owner(instance string) assignment {
	a := d.assignments[instance]
	if !d.agents[a.agent].exists() || d.namespace(a.agent) != "" {
		return assignment{}
	}
	return a
}

// change changes what is known of an agent. One that has neither a connection nor a cluster Secret is forgotten.
func (d *Directory) change(agent string, how func(*agentState)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	old, ok := d.agents[agent]
	if !ok {
		old = agentState{since: d.started}
	}
	now := old
	how(&now)
	if now == old {
		return
	}
	if d.agents[agent] = now; !now.exists() {
		delete(d.agents, agent)
	}
	var moved map[string]struct{}
	if now.exists() != ok {
		moved = d.instances[agent]
	}
	d.notify(agent, maps.Keys(moved))
}

// maxBuild bounds how many bytes of an agent's version are kept: every component gets them.
const maxBuild = 64

// refresh takes in whether an agent can be reached.
func (d *Directory) refresh(agent string) {
	d.change(agent, func(s *agentState) {
		held, connected := d.roster.Held(peers.Tunnel, agent)
		switch {
		case connected:
			build := strings.ToValidUTF8(held.Build[:min(len(held.Build), maxBuild)], "")
			s.connected, s.seen, s.build, s.since, s.holder = true, true, build, held.Since, held.Principal
		case s.connected:
			s.connected, s.since, s.holder = false, time.Now(), ""
		}
	})
}

// leftLately reports whether an agent is connected, or has left a moment ago.
func (d *Directory) leftLately(agent string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.agents[agent]
	return s.connected || s.seen && time.Since(s.since) < returnTimeout
}

// absence returns, as a status, why an agent that does not listen cannot be reached.
func (d *Directory) absence(agent string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	s, ok := d.agents[agent]
	since := time.Since(s.since).Round(time.Second)
	switch {
	case slices.Contains(d.blocked, blocklist.Agent(identity.Agent(agent))):
		return status.Errorf(codes.FailedPrecondition, "it is blocked on the hub: unblock it with: argocd-agentctl agent unblock %s", agent)
	case !ok:
		return status.Error(codes.NotFound, "there is no such agent: create it with: argocd-agentctl agent create")
	case s.connected:
		return status.Error(codes.FailedPrecondition, "it is connected to another principal, which cannot be reached from here now")
	case !s.seen:
		return status.Errorf(codes.FailedPrecondition, "it has not connected since this principal started, %s ago", since)
	default:
		return status.Errorf(codes.FailedPrecondition, "it disconnected %s ago", since)
	}
}

// watcher collects what changed since it was read last. What changed twice is sent once.
type watcher struct {
	agents    map[string]struct{} // that changed. Guarded by Directory.mu
	instances map[string]struct{} // of applications that may belong to another agent. Guarded by Directory.mu
	blocked   bool                // the blocklist changed. Guarded by Directory.mu
	left      bool                // a principal has been left. Guarded by Directory.mu
	changed   signal.Signal
}

// watch returns a watcher to which everything is new.
func (d *Directory) watch() *watcher {
	d.mu.Lock()
	defer d.mu.Unlock()
	w := &watcher{agents: make(map[string]struct{}), instances: make(map[string]struct{}), blocked: true, changed: signal.New()}
	for agent := range d.agents {
		w.agents[agent] = struct{}{}
		if d.namespace(agent) == "" {
			maps.Copy(w.instances, d.instances[agent])
		}
	}
	d.watchers[w] = struct{}{}
	return w
}

func (d *Directory) unwatch(w *watcher) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.watchers, w)
}

// notify has all watchers look at an agent, unless it is empty, and at applications. d.mu is held.
func (d *Directory) notify(agent string, instances func(yield func(string) bool)) {
	for w := range d.watchers {
		if agent != "" {
			w.agents[agent] = struct{}{}
		}
		for instance := range instances {
			w.instances[instance] = struct{}{}
		}
		w.changed.Give()
	}
}

// updates returns what changed since the last call for this watcher, in one message at least.
func (d *Directory) updates(w *watcher) []*tunnelv1.DirectoryUpdate {
	d.mu.Lock()
	defer d.mu.Unlock()
	var m messages
	if first := m.last(); w.blocked {
		first.Blocklist, w.blocked = &tunnelv1.Blocklist{Keys: d.blocked}, false
		m.size += proto.Size(first)
	}
	m.last().Left, w.left = w.left, false
	for _, name := range slices.Sorted(maps.Keys(w.agents)) {
		update := m.last()
		s, ok := d.agents[name]
		if !ok {
			update.Removed = append(update.Removed, name)
			m.size += len(name)
			continue
		}
		agent := &tunnelv1.Agent{
			Name: name, Connected: s.connected, Since: timestamppb.New(s.since), Server: s.server, Build: s.build,
			Namespace: d.namespace(name),
		}
		update.Agents = append(update.Agents, agent)
		m.size += proto.Size(agent)
	}
	for _, instance := range slices.Sorted(maps.Keys(w.instances)) {
		update := m.last()
		owner := d.owner(instance)
		if owner.agent == "" {
			update.Unassigned = append(update.Unassigned, instance)
			m.size += len(instance)
			continue
		}
		a := &tunnelv1.Assignment{Instance: instance, Agent: owner.agent, SpokeInstance: owner.spokeInstance}
		update.Assigned = append(update.Assigned, a)
		m.size += proto.Size(a)
	}
	// New maps, because cleared ones stay as large as the first update.
	w.agents, w.instances = make(map[string]struct{}), make(map[string]struct{})
	return m.all
}

// maxMessage is about how large one message is, in bytes: far less than gRPC takes, however long one agent's part of it is.
const maxMessage = 1 << 20

// messages are updates that are not too large.
type messages struct {
	all  []*tunnelv1.DirectoryUpdate
	size int // of the last one, in bytes
}

// last returns the message that has room for one more thing.
func (m *messages) last() *tunnelv1.DirectoryUpdate {
	if len(m.all) == 0 || m.size >= maxMessage {
		m.all, m.size = append(m.all, &tunnelv1.DirectoryUpdate{}), 0
	}
	return m.all[len(m.all)-1]
}
