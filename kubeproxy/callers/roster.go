package callers

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/tunnel"
)

const (
	// unknownFor is how long it is remembered that there is no agent of a name.
	unknownFor = time.Minute
	// maxUnknown bounds how many such names are remembered.
	maxUnknown = 1024
	// asking is how long it may take to ask.
	asking = 10 * time.Second
)

// Roster knows which agents there are by dialling them. Only that a name is none is remembered: it is asked for again and
// again by callers who share one certificate.
type Roster struct {
	dial func(ctx context.Context, agent string) (net.Conn, error)

	mu      sync.Mutex
	unknown map[string]time.Time // until when. Guarded by mu
}

// NewRoster returns a Roster. The dial's errors are those of package tunnel.
func NewRoster(dial func(ctx context.Context, agent string) (net.Conn, error)) *Roster {
	return &Roster{dial: dial, unknown: make(map[string]time.Time)}
}

// Known implements Agents.
func (r *Roster) Known(ctx context.Context, name string) (bool, error) {
	if r.remembered(name) {
		return false, nil
	}
	ctx, cancel := context.WithTimeout(ctx, asking)
	defer cancel()
	conn, err := r.dial(ctx, name)
	switch {
	case err == nil:
		_ = conn.Close() // nothing was said on it
		return true, nil
	case errors.Is(err, tunnel.ErrAway):
		return true, nil
	case errors.Is(err, tunnel.ErrUnknown):
		r.remember(name)
		return false, nil
	default:
		return false, err
	}
}

func (r *Roster) remembered(name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return time.Now().Before(r.unknown[name])
}

func (r *Roster) remember(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.unknown) >= maxUnknown {
		clear(r.unknown)
	}
	r.unknown[name] = time.Now().Add(unknownFor)
}
