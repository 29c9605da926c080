// Package spokes answers for what is kept in the agents' Redis: it asks them, keeps what they said, and follows what they
// announce.
//
// From every agent that something is wanted of there are two kinds of connection. Over the feed the agent's Redis says which
// keys change, and what is announced on the channels of applications. Over a few others values are read. A value counts as
// fresh as long as the feed lives that was there before it was asked for, and has not spoken of it since. One that is not
// fresh is asked for again, and is kept for the time when the agent cannot be asked.
//
// A value is read over another connection than changes are told on, so either may come first. Redis tells of a change after
// it has made it. So if a value was read before a change, then either the change is told while the value is on its way, and
// the value is not fresh when it arrives; or it is told later, and the value stops being fresh then.
package spokes

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/semaphore"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/redis/keys"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/directory"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/redisproxy/cache"
)

const (
	// maxValue bounds one value of an agent's, and maxValues all that are being read at once.
	maxValue  = 64 << 20
	maxValues = 256 << 20
	// infoPatience is how long the state of a cluster waits for what the agent says about it: a list of clusters is not
	// to wait for the slowest of them.
	infoPatience = 2 * time.Second
)

// Roster knows which agents there are.
type Roster interface {
	Belongings

	// Agent returns the agent of that name.
	Agent(name string) (directory.Agent, bool)
	// All returns all agents.
	All() []directory.Agent
	// Changed returns a channel that is closed at the next change.
	Changed() <-chan struct{}
}

// Belongings knows what on the hub is whose.
type Belongings interface {
	// Owner returns whose application an instance is, and what it is called there. An instance of nobody's is the hub's own.
	Owner(instance string) (agent, spokeInstance string, ok bool)
	// Hub is the reverse of Owner.
	Hub(agent, spokeInstance string) (instance string, ok bool)
	// Server returns the agent whose cluster has that URL.
	Server(url string) (directory.Agent, bool)
}

// Options configure Spokes.
type Options struct {
	// Dial opens a connection to an agent's Redis. Every error means that it cannot be reached now.
	Dial func(ctx context.Context, agent string) (net.Conn, error)
	// Roster knows which agents there are.
	Roster Roster
	// Space is the keys of the hub's Argo CD.
	Space keys.Space
	// CacheSize is how many bytes of values may be kept.
	CacheSize int64
	// Timeout is how long a client waits for an agent.
	Timeout time.Duration
	// Registerer takes the metrics.
	Registerer prometheus.Registerer
	Logger     *slog.Logger
}

// Spokes is the agents' Redis.
type Spokes struct {
	options Options
	metrics metrics
	values  *semaphore.Weighted // bytes that are being read
	running sync.WaitGroup

	mu         sync.Mutex
	begin      func(func(ctx context.Context)) // starts what Run waits for; nil while it does not run. Guarded by mu
	cache      *cache.Cache                    // Guarded by mu
	spokes     map[string]*spoke               // by agent; guarded by mu, and all that is in them
	channels   map[string]*channel             // that somebody follows. Guarded by mu
	subjects   map[subject]map[*channel]none   // Guarded by mu
	patterns   map[string]map[Subscriber]none  // Guarded by mu
	subscribed map[Subscriber]map[string]none  // to channels; see Leave. Guarded by mu
}

type none = struct{}

// New returns the agents' Redis. Until Run runs, none can be reached.
func New(o Options) *Spokes {
	s := &Spokes{
		options: o, metrics: newMetrics(o.Registerer), values: semaphore.NewWeighted(maxValues),
		cache: cache.New(o.CacheSize), spokes: make(map[string]*spoke), channels: make(map[string]*channel),
		subjects: make(map[subject]map[*channel]none), patterns: make(map[string]map[Subscriber]none),
		subscribed: make(map[Subscriber]map[string]none),
	}
	s.metrics.watch(o.Registerer, s)
	return s
}

// Run follows the agents until the context ends, and returns when nothing of it runs any more.
func (s *Spokes) Run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer s.running.Wait()
	defer cancel()
	s.mu.Lock()
	s.begin = func(do func(context.Context)) { s.running.Go(func() { do(ctx) }) }
	s.mu.Unlock()
	for {
		changed := s.options.Roster.Changed()
		s.mu.Lock()
		s.reconsider()
		s.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			s.mu.Lock()
			s.begin = nil
			for _, p := range s.spokes {
				p.cut()
			}
			s.mu.Unlock()
			return
		}
	}
}

// reconsider takes in a change of the roster. It is called with mu held.
func (s *Spokes) reconsider() {
	for _, c := range s.channels {
		s.assign(c)
	}
	s.followPatterns()
	for name, p := range s.spokes {
		if agent, _ := s.options.Roster.Agent(name); agent.Connected {
			p.wake()
		} else {
			p.cut()
		}
	}
}

// spoke returns what there is of an agent. It is called with mu held.
func (s *Spokes) spoke(agent string) *spoke {
	p := s.spokes[agent]
	if p == nil {
		p = newSpoke(s, agent)
		s.spokes[agent] = p
	}
	return p
}

// Target is a key of an agent's Redis. One without an Agent is none.
type Target struct {
	Agent string
	// Path is the key, without the prefix that is in use there.
	Path string
	// Instance is the application that it is about, as the agent calls it.
	Instance string

	cluster    bool // it is the agent's cluster's state
	compressed bool
}

// Find tells whether a key is an agent's, and which one there.
func (s *Spokes) Find(key keys.Key) (Target, bool) {
	switch key.Kind {
	case keys.Tree, keys.Managed:
		if agent, instance, ok := s.options.Roster.Owner(key.Name); ok {
			return Target{Agent: agent, Path: key.Path(instance), Instance: instance}, true
		}
	case keys.Cluster:
		if agent, ok := s.options.Roster.Server(key.Name); ok {
			return Target{Agent: agent.Name, Path: key.LocalCluster(), cluster: true, compressed: key.Compressed()}, true
		}
	}
	return Target{}, false
}

// unavailable says why there is no answer.
//
// It is an error, and not the nil of a key that does not exist, because of what Argo CD's server makes of either: after a nil
// it has the application refreshed and waits until that is done, for as long as the user does. With an agent that is away that
// is never. An error it shows.
func (s *Spokes) unavailable(name string, err error) error {
	if agent, known := s.options.Roster.Agent(name); known && !agent.Connected {
		if agent.Since.IsZero() {
			return fmt.Errorf("agent %q has not connected, and nothing of what it has is known here", name)
		}
		return fmt.Errorf("agent %q is not connected since %s, and this was not asked for before",
			name, agent.Since.UTC().Format(time.RFC3339))
	}
	return fmt.Errorf("agent %q did not answer, and this was not asked for before: %w", name, err)
}
