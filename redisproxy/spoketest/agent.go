// Package spoketest has what the tests of redisproxy run against besides Redis: an agent that has one, and a directory of agents.
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

// Agent is an agent's end of the tunnel, before its Redis. It can disconnect, and be slow.
type Agent struct {
	// Prefix begins the keys of the agent's Argo CD.
	Prefix string
	// Untracked says that its Redis does not support client tracking.
	Untracked bool

	redis   string
	running sync.WaitGroup

	mu      sync.Mutex
	changed chan struct{} // closed at the next change of what follows, but for new connections
	away    bool
	held    bool // answers to GET wait
	conns   map[net.Conn]struct{}
	asked   map[string]int // how many commands, by their first word
}

// NewAgent returns an agent that is there. It ends with the test.
func NewAgent(tb testing.TB, redis string) *Agent {
	tb.Helper()
	a := &Agent{redis: redis, conns: make(map[net.Conn]struct{}), asked: make(map[string]int), changed: make(chan struct{})}
	tb.Cleanup(func() {
		a.Disconnect()
		a.running.Wait()
	})
	return a
}

// Disconnect closes all connections, and refuses others.
func (a *Agent) Disconnect() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.away = true
	for conn := range a.conns {
		_ = conn.Close()
	}
	a.notify()
}

// Reconnect accepts connections again.
func (a *Agent) Reconnect() { a.set(func() { a.away = false }) }

// HoldReplies keeps back the replies to GET, until Release.
func (a *Agent) HoldReplies() { a.set(func() { a.held = true }) }

// Release passes on what HoldReplies keeps back.
func (a *Agent) Release() { a.set(func() { a.held = false }) }

// Commands returns how often a command was sent, by its first word in upper case.
func (a *Agent) Commands(word string) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.asked[word]
}

// WaitForCommands waits until a condition holds of how often commands were sent.
func (a *Agent) WaitForCommands(tb testing.TB, what func(asked map[string]int) bool) {
	tb.Helper()
	a.wait(tb, func() bool { return what(a.asked) })
}

// WaitForConnections waits until so many connections are open.
func (a *Agent) WaitForConnections(tb testing.TB, open int) {
	tb.Helper()
	a.wait(tb, func() bool { return len(a.conns) == 2*open }) // each has two ends
}

// wait waits until something holds, which is asked with mu held.
func (a *Agent) wait(tb testing.TB, holds func() bool) {
	tb.Helper()
	limit := time.After(2 * time.Minute)
	for {
		a.mu.Lock()
		over, changed, asked, conns := holds(), a.changed, maps.Clone(a.asked), len(a.conns)
		a.mu.Unlock()
		if over {
			return
		}
		select {
		case <-changed:
		case <-limit:
			require.FailNow(tb, "the agent was not used as it should be", "asked %v, over %d ends of connections", asked, conns)
		}
	}
}

func (a *Agent) set(change func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	change()
	a.notify()
}

func (a *Agent) notify() {
	close(a.changed)
	a.changed = make(chan struct{})
}

// until waits until something holds of the agent, or it is disconnected.
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
	a.running.Go(func() { a.forwardCommands(far, redis) })
	a.running.Go(func() { a.forwardReplies(far, redis) })
	return near, nil
}

// forwardCommands passes on the hub's commands.
func (a *Agent) forwardCommands(far, redis net.Conn) {
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

// forwardReplies passes on Redis' replies. The reply to HELLO is an agent's.
func (a *Agent) forwardReplies(far, redis net.Conn) {
	defer a.drop(far, redis)
	answered := false
	for buffer := make([]byte, 64<<10); ; {
		n, err := redis.Read(buffer)
		if err != nil {
			return
		}
		p := buffer[:n]
		if !answered { // one read: it is short, and the only thing asked
			answered = true
			p = a.helloReply()
		}
		a.until(func() bool {
			return p[0] != '$' && p[0] != '_' || !a.held
		})
		if _, err := far.Write(p); err != nil {
			return
		}
	}
}

func (a *Agent) helloReply() []byte {
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
	a.notify()
}

// Directory knows the agents of a test.
type Directory struct {
	mu      sync.Mutex
	changed chan struct{}
	agents  map[string]directory.Agent
	owners  map[string][2]string
	lost    time.Time
	reason  error
}

// SetLost sets since when the principal cannot be reached, and why; nil for one that can.
func (d *Directory) SetLost(since time.Time, reason error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lost, d.reason = since, reason
}

// Lost returns why the principal cannot be reached, and since when.
func (d *Directory) Lost() (since time.Time, reason error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.lost, d.reason
}

// NewDirectory returns a directory without agents.
func NewDirectory() *Directory {
	return &Directory{changed: make(chan struct{}), agents: make(map[string]directory.Agent), owners: make(map[string][2]string)}
}

// Set adds or changes an agent.
func (d *Directory) Set(a directory.Agent) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.agents[a.Name] = a
	close(d.changed)
	d.changed = make(chan struct{})
}

// Remove removes an agent, and what it owns.
func (d *Directory) Remove(agent string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.agents, agent)
	maps.DeleteFunc(d.owners, func(_ string, owner [2]string) bool { return owner[0] == agent })
	close(d.changed)
	d.changed = make(chan struct{})
}

// SetOwner sets which agent owns an application, and what it is called there.
func (d *Directory) SetOwner(instance, agent, theirs string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.owners[instance] = [2]string{agent, theirs}
	close(d.changed)
	d.changed = make(chan struct{})
}

// Agent returns the agent of that name.
func (d *Directory) Agent(name string) (directory.Agent, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	a, ok := d.agents[name]
	return a, ok
}

// All returns all agents.
func (d *Directory) All() (all []directory.Agent) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, a := range d.agents {
		all = append(all, a)
	}
	return all
}

// Owner returns which agent owns an instance.
func (d *Directory) Owner(instance string) (agent, theirs string, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	o, ok := d.owners[instance]
	return o[0], o[1], ok
}

// Hub returns what an agent's application is called on the hub.
func (d *Directory) Hub(agent, theirs string) (string, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for instance, owner := range d.owners {
		if owner == [2]string{agent, theirs} {
			return instance, true
		}
	}
	return "", false
}

// Server returns the agent whose cluster has that URL.
func (d *Directory) Server(url string) (directory.Agent, bool) {
	for _, a := range d.All() {
		if a.Server == url {
			return a, true
		}
	}
	return directory.Agent{}, false
}

// Changed returns a channel that is closed at the next change.
func (d *Directory) Changed() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.changed
}
