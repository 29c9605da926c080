package routes

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/signal"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/peers"
)

// ageEvery is how often what is not needed any more is looked for.
const ageEvery = time.Minute

// Follower keeps a Table up to date with what principals say.
type Follower struct {
	roster *peers.Roster
	peers  *peers.Peers
	table  *Table
	logger *slog.Logger

	changed   signal.Signal
	published chan struct{} // closed once the table has what all principals say

	mu     sync.Mutex
	agents map[string]struct{} // whose tunnels are held by another one, perhaps. Guarded by mu
}

// NewFollower returns a follower. It must be made before the peers run.
func NewFollower(roster *peers.Roster, principals *peers.Peers, table *Table, logger *slog.Logger) *Follower {
	f := &Follower{
		roster: roster, peers: principals, table: table, logger: logger,
		changed: signal.New(), published: make(chan struct{}), agents: make(map[string]struct{}),
	}
	roster.Subscribe(f.note)
	return f
}

// note notes what has changed. It must not block.
func (f *Follower) note(kind peers.Kind, agent string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if kind == peers.Tunnel {
		f.agents[agent] = struct{}{}
	}
	if agent == "" || kind == peers.Tunnel { // which principals there are, or which of them holds an agent
		f.changed.Give()
	}
}

// take returns the agents that were noted.
func (f *Follower) take() map[string]struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	agents := f.agents
	f.agents = make(map[string]struct{})
	return agents
}

// Published is closed once the table has what all principals say that there are. Envoy drops what a server that it comes back to does not
// know, so nobody may be served before.
func (f *Follower) Published() <-chan struct{} { return f.published }

// Ready returns nil once the table has what all principals say.
func (f *Follower) Ready() error {
	select {
	case <-f.published:
		return nil
	default:
		return errors.New("not all principals have said which agents they serve: see --principals")
	}
}

// Run keeps the table up to date until the context ends.
func (f *Follower) Run(ctx context.Context) {
	age := time.NewTicker(ageEvery)
	defer age.Stop()
	settled := f.peers.Settled()
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.changed:
			f.publish()
		case <-settled:
			settled = nil
			f.publish()
			close(f.published)
		case now := <-age.C:
			if err := f.table.Age(now); err != nil {
				f.logger.Error("Failed to remove routes", "err", err)
			}
		}
	}
}

// publish publishes what has changed: clusters before what leads there. A principal says which agents it holds before it is known to be there, so
// all principals are looked at each time.
func (f *Follower) publish() {
	changed := f.take()
	if err := f.table.SetPrincipals(f.peers.All()); err != nil {
		f.logger.Error("Failed to publish principals", "err", err)
	}
	if len(changed) == 0 {
		return
	}
	moved := make(map[string]string, len(changed))
	for agent := range changed {
		held, _ := f.roster.Elsewhere(peers.Tunnel, agent)
		moved[agent] = held.Principal
	}
	if err := f.table.Move(moved); err != nil {
		f.logger.Error("Failed to publish routes", "err", err)
	}
}
