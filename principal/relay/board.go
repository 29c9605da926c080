package relay

import (
	"iter"
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
	"github.com/argocd-agent-mesh/argocd-agent-mesh/principal/authn"
)

// board shows which agents there are, and which applications are whose, to whoever watches.
type board struct {
	directory Directory
	began     time.Time

	mu       sync.Mutex
	agents   map[string]entry
	watchers map[*watcher]struct{}
	closed   chan struct{}
}

// entry is what is known of an agent.
type entry struct {
	connected bool
	seen      bool // it was connected
	since     time.Time
	build     string
	known     bool   // the hub knows its cluster
	server    string // by this address
}

// watcher is told what changes. What changes again before it has read it is told once.
type watcher struct {
	dirty  map[string]struct{} // agents that changed. Guarded by board.mu
	moved  map[string]struct{} // applications, by their instances, that may be another agent's. Guarded by board.mu
	notice signal.Signal       // something is
}

func newBoard(directory Directory) *board {
	return &board{
		directory: directory, began: time.Now(), agents: make(map[string]entry), watchers: make(map[*watcher]struct{}),
		closed: make(chan struct{}),
	}
}

// change changes what is known of an agent. One that was never seen and is not known otherwise is no more.
func (b *board) change(agent string, how func(*entry)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	old, ok := b.agents[agent]
	if !ok {
		old = entry{since: b.began}
	}
	now := old
	how(&now)
	if ok && now == old {
		return
	}
	there := now.seen || now.known
	if b.agents[agent] = now; !there {
		delete(b.agents, agent)
	}
	var moved iter.Seq[string]
	if there != ok && len(b.watchers) > 0 { // what is meant for it is its own only as long as it is known
		moved = b.instances(agent)
	}
	b.tell(moved, agent)
}

// instances yields the applications that may be an agent's and that are told of one by one. mu is held.
func (b *board) instances(agent string) iter.Seq[string] {
	if b.directory.Namespace(agent) != "" {
		return nil
	}
	return b.directory.Instances(agent)
}

// tell tells all watchers that something is new of applications and agents. mu is held.
func (b *board) tell(moved iter.Seq[string], agents ...string) {
	for w := range b.watchers {
		for _, agent := range agents {
			w.dirty[agent] = struct{}{}
		}
		w.expect(moved)
		w.notice.Give()
	}
}

// expect takes note of applications, nil if of none. mu is held.
func (w *watcher) expect(moved iter.Seq[string]) {
	if moved == nil {
		return
	}
	for instance := range moved {
		w.moved[instance] = struct{}{}
	}
}

// reassigned tells that an application may no longer be whose it was: one of these agents.
func (b *board) reassigned(instance string, agents ...string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if slices.ContainsFunc(agents, func(agent string) bool { _, known := b.agents[agent]; return known }) {
		b.tell(slices.Values([]string{instance}))
	}
}

// rehoused tells that an agent has another namespace on the hub, or none any more.
func (b *board) rehoused(agent string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, known := b.agents[agent]; known {
		b.tell(b.directory.Instances(agent), agent)
	}
}

// maxBuild is how much of an agent's words on its version is kept: everybody is told of it, and it may say as much as a
// message may hold.
const maxBuild = 64

func (b *board) connected(agent, build string) {
	build = strings.ToValidUTF8(build[:min(len(build), maxBuild)], "")
	b.change(agent, func(e *entry) { e.connected, e.seen, e.build, e.since = true, true, build, time.Now() })
}

func (b *board) disconnected(agent string) {
	b.change(agent, func(e *entry) { e.connected, e.since = false, time.Now() })
}

func (b *board) cluster(agent, server string) {
	b.change(agent, func(e *entry) { e.known, e.server = true, server })
}

func (b *board) noCluster(agent string) {
	b.change(agent, func(e *entry) { e.known, e.server, e.seen = false, "", e.connected })
}

// absence returns, as a status, why an agent cannot be reached that does not listen.
func (b *board) absence(agent string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	e, ok := b.agents[agent]
	switch {
	case !ok:
		return status.Error(codes.NotFound, "there is no such agent: create it with: argocd-agentctl agent create")
	case !e.seen:
		return status.Errorf(codes.FailedPrecondition, "it has not connected since this principal started, %s ago", since(e.since))
	default:
		return status.Errorf(codes.FailedPrecondition, "it disconnected %s ago", since(e.since))
	}
}

// watch begins to watch: everything is new to the watcher.
func (b *board) watch() *watcher {
	b.mu.Lock()
	defer b.mu.Unlock()
	w := &watcher{dirty: make(map[string]struct{}), moved: make(map[string]struct{}), notice: signal.New()}
	for agent := range b.agents {
		w.dirty[agent] = struct{}{}
		w.expect(b.instances(agent))
	}
	b.watchers[w] = struct{}{}
	return w
}

func (b *board) leave(w *watcher) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.watchers, w)
}

// maxNews is about how much is told in one message: far less than gRPC takes, however long what is known of one agent is.
const maxNews = 1 << 20

// bulletin is news in messages that are not too large.
type bulletin struct {
	parts []*tunnelv1.Roster
	size  int // of the last one
}

// next returns the message that something more fits into.
func (n *bulletin) next() *tunnelv1.Roster {
	if len(n.parts) == 0 || n.size >= maxNews {
		n.parts, n.size = append(n.parts, &tunnelv1.Roster{}), 0
	}
	return n.parts[len(n.parts)-1]
}

// news returns what has changed since it was called last, in messages that are not too large. There is one at least.
func (b *board) news(w *watcher) []*tunnelv1.Roster {
	b.mu.Lock()
	defer b.mu.Unlock()
	var n bulletin
	n.next()
	for _, name := range slices.Sorted(maps.Keys(w.dirty)) {
		part := n.next()
		e, ok := b.agents[name]
		if !ok {
			part.Removed = append(part.Removed, name)
			n.size += len(name)
			continue
		}
		agent := &tunnelv1.Agent{
			Name: name, Connected: e.connected, Since: timestamppb.New(e.since), Server: e.server, Build: e.build,
			Namespace: b.directory.Namespace(name),
		}
		part.Agents = append(part.Agents, agent)
		n.size += proto.Size(agent)
	}
	for _, instance := range slices.Sorted(maps.Keys(w.moved)) {
		part := n.next()
		agent, there := b.directory.Assigned(instance)
		if _, known := b.agents[agent]; !known {
			part.Unassigned = append(part.Unassigned, instance)
			n.size += len(instance)
			continue
		}
		assignment := &tunnelv1.Assignment{Instance: instance, Agent: agent, SpokeInstance: there}
		part.Assigned = append(part.Assigned, assignment)
		n.size += proto.Size(assignment)
	}
	// Not only cleared: after everything was new once, they would stay as large as that.
	w.dirty, w.moved = make(map[string]struct{}), make(map[string]struct{})
	return n.parts
}

// close ends all watching.
func (b *board) close() { close(b.closed) }

// Watch tells a component which agents there are, and which applications are whose, once that is known: what is said first
// stands in place of what the component knew before.
func (e *Exchange) Watch(_ *tunnelv1.WatchRequest, stream tunnelv1.Relay_WatchServer) error {
	ctx, who, err := e.options.Gate.Component(stream.Context())
	if err != nil {
		return err
	}
	defer who.End()
	select {
	case <-e.options.Known:
	case <-e.board.closed:
		return authn.ErrDraining
	case <-ctx.Done():
		return over(ctx)
	}
	w := e.board.watch()
	defer e.board.leave(w)
	for first := true; ; first = false {
		parts := e.board.news(w)
		for i, part := range parts {
			part.More = first && i < len(parts)-1
			if err := stream.Send(part); err != nil {
				return err
			}
		}
		select {
		case <-w.notice:
		case <-e.board.closed:
			return authn.ErrDraining
		case <-ctx.Done():
			return over(ctx)
		}
	}
}
