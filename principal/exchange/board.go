package exchange

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
	"github.com/argocd-agent-mesh/argocd-agent-mesh/principal/gate"
)

// board shows which agents there are, to whoever watches.
type board struct {
	namespace func(agent string) string
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
	notice chan struct{}       // of capacity one
}

func newBoard(namespace func(string) string) *board {
	return &board{
		namespace: namespace, began: time.Now(), agents: make(map[string]entry), watchers: make(map[*watcher]struct{}),
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
	if b.agents[agent] = now; !now.seen && !now.known {
		delete(b.agents, agent)
	}
	for w := range b.watchers {
		w.dirty[agent] = struct{}{}
		select {
		case w.notice <- struct{}{}:
		default: // it has one to read
		}
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
	w := &watcher{dirty: make(map[string]struct{}), notice: make(chan struct{}, 1)}
	for agent := range b.agents {
		w.dirty[agent] = struct{}{}
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

// news returns what has changed since it was called last, in messages that are not too large. There is one at least.
func (b *board) news(w *watcher) []*tunnelv1.Roster {
	b.mu.Lock()
	defer b.mu.Unlock()
	part, size := &tunnelv1.Roster{}, 0
	parts := []*tunnelv1.Roster{part}
	for _, name := range slices.Sorted(maps.Keys(w.dirty)) {
		if size >= maxNews {
			part, size = &tunnelv1.Roster{}, 0
			parts = append(parts, part)
		}
		e, ok := b.agents[name]
		if !ok {
			part.Removed = append(part.Removed, name)
			size += len(name)
			continue
		}
		agent := &tunnelv1.Agent{
			Name: name, Connected: e.connected, Since: timestamppb.New(e.since), Server: e.server, Build: e.build,
			Namespace: b.namespace(name),
		}
		part.Agents = append(part.Agents, agent)
		size += proto.Size(agent)
	}
	clear(w.dirty)
	return parts
}

// close ends all watching.
func (b *board) close() { close(b.closed) }

// Watch tells a component which agents there are.
func (e *Exchange) Watch(_ *tunnelv1.WatchRequest, stream tunnelv1.Relay_WatchServer) error {
	ctx, who, err := e.options.Gate.Component(stream.Context())
	if err != nil {
		return err
	}
	defer who.End()
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
			return gate.ErrDraining
		case <-ctx.Done():
			return over(ctx)
		}
	}
}
