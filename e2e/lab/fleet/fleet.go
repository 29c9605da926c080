// Package fleet is many agents in one process. What they say to a principal, and how, is what a real agent says: the same
// code connects, over mutual TLS, keeps what is shared equal, and listens for what the hub dials. But behind each is no
// cluster, only the memory of what it was sent. So one machine has thousands of them.
package fleet

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/pki"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/converge"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/wire"
)

// Options say what a fleet is. The first three are required.
type Options struct {
	Address string   // of the principal, host:port
	CA      *pki.CA  // that the principal's certificate comes from, and the agents'
	Names   []string // of the agents
	// Others are more principals, host:port. Agents come to all of them in turns, as a Service before them has it.
	Others []string
	// PerSecond is how many agents connect for the first time each second; zero for all at once.
	PerSecond int
	// Greeted, if set, is called when an agent has connected.
	Greeted func(agent string)
	// Intervals are those of heartbeats and of pings; zero for a real agent's own.
	Heartbeat, KeepAlive time.Duration
	// SPIFFEID, if it is set, returns the SPIFFE ID that an agent's certificate has, instead of its name. The principal has one too then,
	// by any CA: the agents do not look.
	SPIFFEID func(name string) string
	// Sidecar has the agents connect in plain text, and say their SPIFFE IDs in the header x-forwarded-client-cert as a sidecar of the
	// principal does, with the whole certificate if WithCertificate is set.
	Sidecar, WithCertificate bool
}

// ConnectedLine is what cmd/fleet writes once all of its agents have connected.
const ConnectedLine = "all agents are connected"

// What a real agent does unless it is told otherwise.
const (
	heartbeat = 30 * time.Second
	keepAlive = 10 * time.Second
)

// workers is how many applies run at a time. They only write to memory.
const workers = 128

// Fleet is agents that connect to a principal, again and again. Its methods may be called by many goroutines, but for Start and
// Close.
type Fleet struct {
	agents  []*agent
	pause   time.Duration     // between the first connections of two agents
	workers *converge.Workers // what all agents apply by
	stop    context.CancelFunc
	work    sync.WaitGroup

	mu           sync.Mutex    // guards all below, and what agents say it guards
	epoch        int           // of Expect
	missing      int           // agents that have not connected in this epoch
	arrived      chan struct{} // closed when none is missing
	applications int           // that agents hold
	awaited      int           // how many they are to hold
	holding      chan struct{} // closed when they do
}

// New makes agents that do not connect before Start.
func New(o Options) (*Fleet, error) {
	if o.Heartbeat == 0 {
		o.Heartbeat = heartbeat
	}
	if o.KeepAlive == 0 {
		o.KeepAlive = keepAlive
	}
	f := &Fleet{workers: converge.NewWorkers(workers), holding: make(chan struct{})}
	if o.PerSecond > 0 {
		f.pause = time.Second / time.Duration(o.PerSecond)
	}
	for i, name := range o.Names {
		a, err := f.newAgent(o, i, name)
		if err != nil {
			return nil, fmt.Errorf("agent %s: %w", name, err)
		}
		f.agents = append(f.agents, a)
	}
	return f, nil
}

// Start has the agents connect, once, and stay until ctx ends or Close.
func (f *Fleet) Start(ctx context.Context) {
	f.Expect()
	ctx, stop := context.WithCancel(ctx)
	f.stop = stop
	f.work.Go(func() { f.workers.Run(ctx) })
	for i, a := range f.agents {
		f.work.Go(func() {
			select {
			case <-time.After(time.Duration(i) * f.pause):
				a.dialer.Run(ctx)
			case <-ctx.Done():
			}
		})
	}
}

// Close disconnects the agents, if they were started. Nothing of them is left then.
func (f *Fleet) Close() {
	if f.stop != nil {
		f.stop()
	}
	f.work.Wait()
}

// Away is how many agents are not connected.
func (f *Fleet) Away() int {
	away := 0
	for _, a := range f.agents {
		if a.dialer.Connected() != nil {
			away++
		}
	}
	return away
}

// Move ends the connection of an agent, which then comes to another principal.
func (f *Fleet) Move(agent int) { f.agents[agent].way.cut() }

// Expect begins to wait for every agent to connect, whether it is connected now or not. It is what Start does, too.
func (f *Fleet) Expect() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.epoch++
	f.missing, f.arrived = len(f.agents), make(chan struct{})
}

// WaitConnected returns when every agent has connected since Expect: the principal has answered its hello.
func (f *Fleet) WaitConnected(ctx context.Context) error {
	f.mu.Lock()
	arrived := f.arrived
	f.mu.Unlock()
	select {
	case <-arrived:
		return nil
	case <-ctx.Done():
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	err := fmt.Errorf("%d of %d agents did not connect: %w", f.missing, len(f.agents), ctx.Err())
	for _, a := range f.agents {
		if a.epoch != f.epoch {
			return fmt.Errorf("%w; %s: %w", err, a.name, a.dialer.Connected())
		}
	}
	return err
}

// greeted says that an agent has connected.
func (f *Fleet) greeted(a *agent, o Options) func(wire.Hello) {
	return func(wire.Hello) {
		if o.Greeted != nil {
			o.Greeted(a.name)
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		if a.epoch == f.epoch {
			return
		}
		a.epoch = f.epoch
		if f.missing--; f.missing == 0 {
			close(f.arrived)
		}
	}
}

// WaitApplications returns when the agents together hold so many Applications. One waits at a time.
func (f *Fleet) WaitApplications(ctx context.Context, count int) error {
	f.mu.Lock()
	f.awaited, f.holding = count, make(chan struct{})
	holding := f.holding
	f.mu.Unlock()
	f.held(0)
	select {
	case <-holding:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("the agents do not hold %d Applications: %w", count, ctx.Err())
	}
}

// held says that agents hold so many Applications more, or fewer.
func (f *Fleet) held(change int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.applications += change
	if f.awaited > 0 && f.applications == f.awaited {
		f.awaited = 0
		close(f.holding)
	}
}

// Report gives an Application of an agent a status, as an application controller would, for the agent to tell the hub of.
func (f *Fleet) Report(agent int, application string, status json.RawMessage) error {
	return f.agents[agent].report(application, status)
}
