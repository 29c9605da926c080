package sessions

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/signal"
)

// moves are agents that another principal serves since they were taken out last. They wait to be forgotten here: the roster says who they
// are while locks may be held.
type moves struct {
	wake signal.Signal

	mu     sync.Mutex
	agents map[string]struct{} // guarded by mu
}

func newMoves() *moves { return &moves{wake: signal.New(), agents: make(map[string]struct{})} }

// add does not block.
func (m *moves) add(agent string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.agents[agent] = struct{}{}
	m.wake.Give()
}

// take takes out all agents.
func (m *moves) take() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	taken := slices.Collect(maps.Keys(m.agents))
	m.agents = make(map[string]struct{})
	return taken
}

// run calls a function for each agent, until the context ends.
func (m *moves) run(ctx context.Context, moved func(agent string)) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-m.wake:
		}
		for _, agent := range m.take() {
			moved(agent)
		}
	}
}
