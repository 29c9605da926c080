package sessions

import (
	"golang.org/x/time/rate"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/converge"
)

// How often an agent may connect. Each time costs the principal a question to the API server at most, and a comparison of all that the
// agent has. An agent whose connections break off again and again comes back after a quarter of a second at the earliest, and
// after a second on average.
const (
	connectsPerSecond = 1
	connectsBurst     = 60
)

// minBudgets may be remembered before any is forgotten. From maxBudgets on also those are that are used.
const (
	minBudgets = 64
	maxBudgets = 10_000
)

// budget is what an agent may still make the principal do. It belongs to the agent's name, which is its certificate's: who
// connects again has what was left.
type budget struct {
	*converge.Budget

	connects *rate.Limiter
}

// unused reports whether a budget is as good as a new one.
func (b *budget) unused() bool { return b.connects.Tokens() >= connectsBurst && b.Unused() }

// budgetOf returns the budget of an agent. s.mu is held.
func (s *Service) budgetOf(agent string) *budget {
	if b := s.budgets[agent]; b != nil {
		return b
	}
	if len(s.budgets) >= s.sweepAt {
		s.sweepBudgets()
	}
	b := &budget{s.options.Budget(agent), rate.NewLimiter(connectsPerSecond, connectsBurst)}
	s.budgets[agent] = b
	return b
}

// sweepBudgets forgets the budgets of agents without a session that are as good as new ones, which all are a while after the last use.
// When there are too many budgets it forgets those of all agents without a session: nobody is kept from connecting. s.mu is held.
func (s *Service) sweepBudgets() {
	full := len(s.budgets) >= maxBudgets
	for agent, b := range s.budgets {
		if s.agents[agent] == nil && s.streamsOf[agent] == 0 && (full || b.unused()) {
			delete(s.budgets, agent)
		}
	}
	s.sweepAt = max(minBudgets, 2*len(s.budgets))
}

// admitConnect returns why an agent is refused that connects too often, as a status. That it does is logged now and then.
func (s *Service) admitConnect(agent string) error {
	s.mu.Lock()
	b := s.budgetOf(agent)
	s.mu.Unlock()
	if b.connects.Allow() {
		return nil
	}
	b.Reached("connections per second", "")
	return status.Errorf(codes.ResourceExhausted, "the agent connects too often: it may do so %d times, and once a second after that; "+
		"see its log for why its connections end", connectsBurst)
}
