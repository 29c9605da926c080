package spokes

import (
	"fmt"
	"sync"
)

// budget is what the values of all agents may take while they are read. It is shared as switches share their buffers (dynamic
// thresholds): an agent may have as much as is left for the others. So a few agents cannot take all of it, and one alone gets much.
type budget struct {
	mu   sync.Mutex
	used int64 // by all. Guarded by mu
}

// share is what one agent's values take of the budget. It is guarded by the budget's mu.
type share struct{ used int64 }

// take takes so many bytes for an agent, or says why it may not.
func (b *budget) take(agent *share, n int64) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch after := agent.used + n; {
	case after <= minShare: // whatever others have
	case after > maxShare:
		return fmt.Errorf("%w: more than %d MiB of this agent's values are being read at once: try again", errRefused, maxShare>>20)
	case after > maxValues-b.used:
		return fmt.Errorf("%w: %d MiB of all agents' values are being read at once, which leaves less than this agent's need: try again",
			errRefused, b.used>>20)
	}
	agent.used += n
	b.used += n
	return nil
}

func (b *budget) release(agent *share, n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	agent.used -= n
	b.used -= n
}
