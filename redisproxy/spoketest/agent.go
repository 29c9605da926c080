// Package spoketest is what the tests of redisproxy run against besides Redis: agents that have one, and a roster.
package spoketest

import (
	"context"
	"errors"
	"io"
	"maps"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/redcon"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/directory"
)

// Agent is an agent's end of the tunnel, before its Redis. It can be cut off, and be slow.
type Agent struct {
	// Prefix begins the keys of the agent's Argo CD.
	Prefix string
	// Untracked says that its Redis does not know how to tell of changes.
	Untracked bool

	redis   string
	running sync.WaitGroup

	mu      sync.Mutex
	changed chan struct{} // closed at the next change of what follows
	away    bool
	held    bool // answers to GET wait
	pushes  bool // what is told unasked waits
	conns   map[net.Conn]struct{}
	asked   map[string]int // how often, by the first word of a command
}

// NewAgent returns an agent that is there. It ends with the test.
func NewAgent(tb testing.TB, redis string) *Agent {
	tb.Helper()
	a := &Agent{redis: redis, conns: make(map[net.Conn]struct{}), asked: make(map[string]int), changed: make(chan struct{})}
	tb.Cleanup(func() {
		a.Cut()
		a.running.Wait()
	})
	return a
}

// Cut ends all connections, and refuses others.
func (a *Agent) Cut() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.away = true
	for conn := range a.conns {
		_ = conn.Close()
	}
	a.news()
}

// Mend lets connections come about again.
func (a *Agent) Mend() { a.set(func() { a.away = false }) }

// Hold keeps back the answers to GET, after Redis gave them; Release lets them go.
func (a *Agent) Hold() { a.set(func() { a.held = true }) }

// Release lets go what Hold and HoldPushes keep back.
func (a *Agent) Release() { a.set(func() { a.held, a.pushes = false, false }) }

// HoldPushes keeps back what Redis tells unasked.
func (a *Agent) HoldPushes() { a.set(func() { a.pushes = true }) }

// Asked returns how often a command was sent, by its first word in upper case.
func (a *Agent) Asked(word string) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.asked[word]
}

// Wait waits until something holds of how often commands were sent.
func (a *Agent) Wait(tb testing.TB, what func(asked map[string]int) bool) {
	tb.Helper()
	limit := time.After(10 * time.Second)
	for {
		a.mu.Lock()
		asked, changed := maps.Clone(a.asked), a.changed
		a.mu.Unlock()
		if what(asked) {
			return
		}
		select {
		case <-changed:
		case <-limit:
			require.FailNow(tb, "the agent was not asked for what it should be", "%v", asked)
		}
	}
}

func (a *Agent) set(change func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	change()
	a.news()
}

func (a *Agent) news() {
	close(a.changed)
	a.changed = make(chan struct{})
}

// until waits until something holds of the agent, or it is cut off.
func (a *Agent) until(holds func() bool) {
	for {
		a.mu.Lock()
		over, changed := holds() || a.away, a.changed
		a.mu.Unlock()
		if over {
			return
		}
		<-changed
	}
}

// Dial connects to the agent.
func (a *Agent) Dial(ctx context.Context) (net.Conn, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.away {
		return nil, errors.New("the agent is away")
	}
	redis, err := new(net.Dialer).DialContext(ctx, "tcp", a.redis)
	if err != nil {
		return nil, err
	}
	near, far := net.Pipe()
	a.conns[far], a.conns[redis] = struct{}{}, struct{}{}
	a.running.Go(func() { a.up(far, redis) })
	a.running.Go(func() { a.down(far, redis) })
	return near, nil
}

// up hands on what the hub asks.
func (a *Agent) up(far, redis net.Conn) {
	defer a.drop(far, redis)
	for reader := redcon.NewReader(far); ; {
		cmd, err := reader.ReadCommand()
		if err != nil {
			return
		}
		word := strings.ToUpper(string(cmd.Args[0]))
		raw := cmd.Raw
		switch {
		case word == "CLIENT" && a.Untracked:
			raw = redcon.AppendBulkString(redcon.AppendArray(nil, 1), "UNTRACKED")
		case word == "GET" && !strings.HasPrefix(string(cmd.Args[1]), a.Prefix):
			raw = redcon.AppendBulkString(redcon.AppendArray(nil, 1), "FORBIDDEN")
		}
		a.set(func() { a.asked[word]++ })
		if _, err := redis.Write(raw); err != nil {
			return
		}
	}
}

// down hands on what Redis says. The greeting says what an agent's does.
func (a *Agent) down(far, redis net.Conn) {
	defer a.drop(far, redis)
	greeted := false
	for buffer := make([]byte, 64<<10); ; {
		n, err := redis.Read(buffer)
		if err != nil {
			return
		}
		p := buffer[:n]
		if !greeted { // one read: it is short, and the only thing asked
			greeted = true
			p = a.greeting()
		}
		a.until(func() bool {
			if p[0] == '>' {
				return !a.pushes
			}
			return p[0] != '$' && p[0] != '_' || !a.held
		})
		if _, err := far.Write(p); err != nil {
			return
		}
	}
}

func (a *Agent) greeting() []byte {
	p := []byte("%5\r\n")
	for _, field := range []string{"server", "argocd-agent", "version", "1.0.0", "key-prefix", a.Prefix, "namespace", "argocd"} {
		p = redcon.AppendBulkString(p, field)
	}
	return append(p, "$5\r\nproto\r\n:3\r\n"...)
}

func (a *Agent) drop(conns ...io.Closer) {
	for _, conn := range conns {
		_ = conn.Close()
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, conn := range conns {
		delete(a.conns, conn.(net.Conn))
	}
}

// Roster knows the agents of a test.
type Roster struct {
	mu      sync.Mutex
	changed chan struct{}
	agents  map[string]directory.Agent
	owners  map[string][2]string
}

// NewRoster returns a roster without agents.
func NewRoster() *Roster {
	return &Roster{changed: make(chan struct{}), agents: make(map[string]directory.Agent), owners: make(map[string][2]string)}
}

// Set tells of an agent.
func (r *Roster) Set(a directory.Agent) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.agents[a.Name] = a
	close(r.changed)
	r.changed = make(chan struct{})
}

// Own tells whose an application is.
func (r *Roster) Own(instance, agent, theirs string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.owners[instance] = [2]string{agent, theirs}
	close(r.changed)
	r.changed = make(chan struct{})
}

// Agent returns the agent of that name.
func (r *Roster) Agent(name string) (directory.Agent, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	a, ok := r.agents[name]
	return a, ok
}

// All returns all agents.
func (r *Roster) All() (all []directory.Agent) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, a := range r.agents {
		all = append(all, a)
	}
	return all
}

// Owner returns whose an instance is.
func (r *Roster) Owner(instance string) (agent, theirs string, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	o, ok := r.owners[instance]
	return o[0], o[1], ok
}

// Hub returns what an agent's application is called on the hub.
func (r *Roster) Hub(agent, theirs string) (string, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for instance, owner := range r.owners {
		if owner == [2]string{agent, theirs} {
			return instance, true
		}
	}
	return "", false
}

// Server returns the agent whose cluster has that URL.
func (r *Roster) Server(url string) (directory.Agent, bool) {
	for _, a := range r.All() {
		if a.Server == url {
			return a, true
		}
	}
	return directory.Agent{}, false
}

// Changed returns a channel that is closed at the next change.
func (r *Roster) Changed() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.changed
}
