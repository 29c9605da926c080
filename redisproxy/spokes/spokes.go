// Package spokes reads the keys that agents own from their Redis through a cache, and passes on what their Argo CD announces.
//
// There are two kinds of connection to an agent that is in use. On the invalidation stream the agent's Redis reports which keys
// change (CLIENT TRACKING), and what is published on the channels of applications. Values are read over a few others. A cached
// value is fresh as long as the stream is open that was open before the value was read, and has not reported the key since. One
// that is not fresh is read again, and stays in the cache for the time when the agent cannot be reached.
//
// A value and the report of its change come over different connections, so either may come first. Redis reports a change after
// it has made it. So if a value was read before a change, then either the report comes while the value is on its way, and the
// value is not fresh when it arrives; or it comes later, and the value stops being fresh then.
package spokes

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/redis/keys"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/directory"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/redisproxy/bounds"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/redisproxy/cache"
)

const (
	// maxValue bounds one value of an agent's, maxShare all that are being read from one agent at once, and maxValues those of all
	// agents, besides minShare, which every agent has.
	maxValue  = 64 << 20
	minShare  = 1 << 20
	maxShare  = 96 << 20
	maxValues = 256 << 20
	// wholeValue is how many times Options.Timeout a value may take to arrive whole. A client waits for one of them, but a large
	// value that comes later is in the cache for the next.
	wholeValue = 3
	// clusterInfoTimeout is how long the state of a cluster waits for the agent's: a list of clusters is not to wait for the
	// slowest of them.
	clusterInfoTimeout = 2 * time.Second
)

// Directory knows which agents there are.
type Directory interface {
	Owners

	// Agent returns the agent of that name.
	Agent(name string) (directory.Agent, bool)
	// All returns all agents.
	All() []directory.Agent
	// Changed returns a channel that is closed at the next change.
	Changed() <-chan struct{}
	// Lost returns nil while all this is up to date, and otherwise why it is not, and since when.
	Lost() (since time.Time, reason error)
}

// Owners knows what on the hub is whose.
type Owners interface {
	// Owner returns whose application an instance is, and what it is called there. An instance without an owner is the hub's own.
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
	// Directory knows which agents there are.
	Directory Directory
	// Space is the keys of the hub's Argo CD.
	Space keys.Space
	// CacheSize is how many bytes of values may be kept.
	CacheSize int64
	// Timeout is how long a client waits for an agent.
	Timeout time.Duration
	// ValueLimits are what a value may become in argocd-server. Zero means the defaults.
	ValueLimits bounds.Limits
	// Registerer takes the metrics.
	Registerer prometheus.Registerer
	Logger     *slog.Logger
}

// Spokes is the Redis of all agents.
type Spokes struct {
	options Options
	metrics metrics
	values  budget // of bytes that are being read
	running sync.WaitGroup

	mu         sync.Mutex
	startTask  func(func(ctx context.Context)) // starts what Run waits for; nil while it does not run. Guarded by mu
	cache      *cache.Cache                    // Guarded by mu
	spokes     map[string]*spoke               // by agent. Guarded by mu, as all that is in them
	channels   map[string]*channel             // that somebody subscribes to. Guarded by mu
	topics     map[topic]map[*channel]none     // Guarded by mu
	patterns   map[string]map[Subscriber]none  // Guarded by mu
	subscribed map[Subscriber]map[string]none  // to channels. Guarded by mu
	departures int                             // how often Leave was called. Guarded by mu
}

type none = struct{}

// New returns Spokes. Until Run runs, no agent can be reached.
func New(o Options) *Spokes {
	o.ValueLimits = o.ValueLimits.Complete()
	s := &Spokes{
		options: o, metrics: newMetrics(o.Registerer),
		cache: cache.New(o.CacheSize), spokes: make(map[string]*spoke), channels: make(map[string]*channel),
		topics: make(map[topic]map[*channel]none), patterns: make(map[string]map[Subscriber]none),
		subscribed: make(map[Subscriber]map[string]none),
	}
	s.metrics.watch(o.Registerer, s)
	return s
}

// Run serves reads and subscriptions until the context ends, and returns when nothing of it runs any more.
func (s *Spokes) Run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer s.running.Wait()
	defer cancel()
	s.mu.Lock()
	s.startTask = func(do func(context.Context)) { s.running.Go(func() { do(ctx) }) }
	s.mu.Unlock()
	for {
		changed := s.options.Directory.Changed()
		s.mu.Lock()
		s.applyDirectory()
		s.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			s.mu.Lock()
			s.startTask = nil
			for _, p := range s.spokes {
				p.agentDisconnected()
			}
			s.mu.Unlock()
			return
		}
	}
}

// Leave has each connection to an agent closed as soon as no read uses it. Invalidation streams are opened again at once, and later reads open
// other connections.
func (s *Spokes) Leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.departures++
	for _, p := range s.spokes {
		p.closeIdle(time.Time{})
		if p.stream != nil {
			p.reconnected.Give()
			_ = p.stream.Close()
		}
	}
}

// applyDirectory takes in a change of the directory. It is called with mu held.
func (s *Spokes) applyDirectory() {
	for _, c := range s.channels {
		s.assignOwner(c)
	}
	s.ensurePatternStreams()
	for name, p := range s.spokes {
		switch agent, known := s.options.Directory.Agent(name); {
		case agent.Connected:
			p.agentConnected()
		case known:
			p.agentDisconnected()
		default:
			p.agentDisconnected()
			p.reconnected.Give() // runStream is not to wait for its next attempt to see that it is not wanted
			p.forgetIfGone()
		}
	}
}

// spoke returns the agent of that name, which the directory knows or a channel is assigned to. It is called with mu held.
func (s *Spokes) spoke(agent string) *spoke {
	p := s.spokes[agent]
	if p == nil {
		p = newSpoke(s, agent)
		s.spokes[agent] = p
	}
	return p
}

// Target is a key in an agent's Redis. One without an Agent is none.
type Target struct {
	Agent string
	// Path is the key, without the prefix that is in use there.
	Path string
	// Instance is the application that it is about, as the agent calls it.
	Instance string

	cluster    bool // it is the agent's cluster's state, whose bounds are those of package clusterinfo
	compressed bool
}

// Find returns the key in an agent's Redis that a key of the hub's stands for, if an agent owns it.
func (s *Spokes) Find(key keys.Key) (Target, bool) {
	switch key.Kind {
	case keys.Tree, keys.Managed:
		if agent, instance, ok := s.options.Directory.Owner(key.Name); ok {
			return Target{Agent: agent, Path: key.Path(instance), Instance: instance, compressed: key.Compressed()}, true
		}
	case keys.Cluster:
		if agent, ok := s.options.Directory.Server(key.Name); ok {
			return Target{Agent: agent.Name, Path: key.LocalCluster(), cluster: true, compressed: key.Compressed()}, true
		}
	}
	return Target{}, false
}

// unavailable returns why there is no value.
//
// It is an error, and not the nil of a key that does not exist, because of what Argo CD's server makes of either. After a nil
// it has the application refreshed and waits until that is done, for as long as the user does: forever, if the agent is not
// connected. An error it shows.
func (s *Spokes) unavailable(name string, err error) error {
	if errors.Is(err, errRefused) {
		return fmt.Errorf("agent %q: %w", name, err)
	}
	if agent, known := s.options.Directory.Agent(name); known && !agent.Connected {
		if agent.Since.IsZero() {
			return fmt.Errorf("agent %q has not connected, and the key is not in redisproxy's cache", name)
		}
		return fmt.Errorf("agent %q is not connected since %s, and the key is not in redisproxy's cache",
			name, agent.Since.UTC().Format(time.RFC3339))
	}
	return fmt.Errorf("agent %q did not answer, and the key is not in redisproxy's cache: %w", name, err)
}
