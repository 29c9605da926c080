package callers

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/blocklist"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/apihttp"
)

// Blocklist knows whom the hub refuses.
type Blocklist interface {
	// Blocked returns the list. It fails while that is not known.
	Blocked() (blocklist.List, error)
	// Changed returns a channel that is closed when that may have changed.
	Changed() <-chan struct{}
}

// errUnknown means that it is not known yet who is blocked.
var errUnknown = errors.New("the hub's blocklist is not known yet")

// Unblocked is a Trust that refuses whom the hub blocks: a certificate, and any certificate for a blocked agent.
type Unblocked struct {
	*identity.Restriction

	list Blocklist
}

// Restrict returns a Trust that accepts what trust does, unless the hub blocks it: the certificate, or the one agent that its holder may
// reach by the table. Run must run.
func Restrict(trust identity.Trust, list Blocklist, table identity.Callers) *Unblocked {
	return &Unblocked{list: list, Restriction: identity.Restrict(trust, func(peer identity.Peer) error {
		blocked, err := list.Blocked()
		if err != nil {
			return fmt.Errorf("%w: %w", errUnknown, err)
		}
		reach, _ := table.Of(peer.Proof) // what is no caller may be blocked in other ways
		return blocked.Refuses(peer.Proof, reach.Only())
	})}
}

// Run follows the blocklist and the other Trust until the context ends.
func (u *Unblocked) Run(ctx context.Context) {
	var work sync.WaitGroup
	work.Go(func() { u.Restriction.Run(ctx) })
	u.follow(ctx)
	work.Wait()
}

// follow has certificates verified again when the blocklist changes.
func (u *Unblocked) follow(ctx context.Context) {
	var keys []string
	known := false
	for {
		changed := u.list.Changed() // also when an agent comes or goes
		list, err := u.list.Blocked()
		if now := list.Keys(); known != (err == nil) || !slices.Equal(keys, now) {
			keys, known = now, err == nil
			u.Recheck()
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
	}
}

// checkAgent refuses a request for an agent that the hub blocks, whoever asks.
func (c *Callers) checkAgent(agent identity.Agent) error {
	if c.options.Blocklist == nil {
		return nil
	}
	list, err := c.options.Blocklist.Blocked()
	switch {
	case err != nil:
		return apihttp.Errorf(http.StatusServiceUnavailable, "%v: %v", errUnknown, err)
	case list.Has(blocklist.Agent(agent)):
		return apihttp.Errorf(http.StatusForbidden, "agent %q is blocked on the hub: unblock it with: argocd-agentctl agent unblock %s", agent, agent)
	}
	return nil
}
