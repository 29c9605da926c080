// Package directory keeps, for the hub's components, which agents there are and which of the hub's applications belong to
// which agent. It watches the principal's directory.
package directory

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	tunnelv1 "github.com/argocd-agent-mesh/argocd-agent-mesh/api/tunnel/v1"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/signal"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/blocklist"
)

// Agent is an agent as the hub knows it.
type Agent struct {
	Name      string
	Connected bool
	// Since is when Connected changed last, or when the principal started.
	Since time.Time
	// Server is the address of the agent's cluster in Argo CD on the hub, empty if it has none.
	Server string
	// Build is the version of the agent that is or was connected.
	Build string
}

// Directory is a copy of the principal's directory. It is empty until Run runs, and keeps what it had while no principal can
// be reached. It is safe for concurrent use.
type Directory struct {
	client  tunnelv1.RelayClient
	renewed func() <-chan struct{}
	logger  *slog.Logger

	mu         sync.RWMutex
	agents     map[string]Agent
	namespaces map[string]string     // agents' names, by the namespace that is theirs
	spaces     map[string]string     // the reverse
	servers    map[string]string     // agents' names, by their servers
	assigned   map[string]assignment // by instance
	instances  map[assignment]string // the reverse
	blocked    blocklist.List
	complete   bool // the principal has sent all of it once
	changed    signal.Broadcast
	left       signal.Broadcast
	failure    error     // why there is no connection to the principal; nil while there is
	lost       time.Time // since when; zero while there is
}

// assignment is the agent and the instance on its spoke of an application.
type assignment struct{ agent, instance string }

// New returns an empty directory, which watches over a connection to the principal. renewed, if set, returns a channel that is closed
// when there is a newer certificate: the directory then watches anew, which shows it to the principal.
func New(principal grpc.ClientConnInterface, renewed func() <-chan struct{}, logger *slog.Logger) *Directory {
	if renewed == nil {
		renewed = func() <-chan struct{} { return nil }
	}
	d := &Directory{
		client: tunnelv1.NewRelayClient(principal), renewed: renewed, logger: logger,
		failure: errors.New("the principal has not answered yet"), lost: time.Now(),
	}
	d.clear()
	return d
}

// clear forgets everything. mu is held, or nobody else has d.
func (d *Directory) clear() {
	d.agents, d.servers = make(map[string]Agent), make(map[string]string)
	d.namespaces, d.spaces = make(map[string]string), make(map[string]string)
	d.assigned, d.instances = make(map[string]assignment), make(map[assignment]string)
	d.blocked = blocklist.List{}
}

// Waits between attempts to reach the principal, doubled from the first up to the last.
const (
	firstWait = 250 * time.Millisecond
	lastWait  = 15 * time.Second
)

// Run watches the principal until the context ends.
func (d *Directory) Run(ctx context.Context) {
	wait := firstWait
	for {
		complete, err := d.watchUntilRenewed(ctx)
		if ctx.Err() != nil {
			return
		}
		if complete {
			wait = firstWait
		}
		if errors.Is(err, errRenewed) {
			d.logger.Debug("Certificate renewed; watching the principal's directory anew")
			continue
		}
		d.logger.Warn("Connection to principal failed; retrying", "err", reasonOf(err), "backoff", wait.String())
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
		wait = min(2*wait, lastWait)
	}
}

// errRenewed ends a call in favour of one that shows a newer certificate.
var errRenewed = errors.New("there is a newer certificate")

// watchUntilRenewed watches until there is a newer certificate.
func (d *Directory) watchUntilRenewed(ctx context.Context) (complete bool, err error) {
	renewed := d.renewed()
	ctx, cancel := context.WithCancelCause(ctx)
	done := make(chan struct{})
	var waiting sync.WaitGroup
	waiting.Go(func() {
		select {
		case <-renewed:
			cancel(errRenewed)
		case <-done:
		}
	})
	defer waiting.Wait()
	defer close(done)
	defer cancel(nil)
	return d.watch(ctx)
}

// watch watches until the principal ends the call, and reports whether the first update was complete.
func (d *Directory) watch(ctx context.Context) (complete bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := d.client.Watch(ctx, &tunnelv1.WatchRequest{})
	var parts []*tunnelv1.DirectoryUpdate // of the first update
	for err == nil {
		var update *tunnelv1.DirectoryUpdate
		if update, err = stream.Recv(); err != nil {
			break
		}
		if complete {
			d.apply(update)
			continue
		}
		if parts = append(parts, update); !update.GetMore() {
			d.replace(parts)
			parts, complete = nil, true
			d.logger.Info("Connected to the principal", "agents", len(d.All()))
		}
	}
	if cause := context.Cause(ctx); errors.Is(cause, errRenewed) {
		return complete, cause
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.failure == nil {
		d.lost = time.Now()
	}
	d.failure = err
	d.notify()
	return complete, err
}

// reasonOf is what a log says of an error. What a proxy answers, such as an Envoy without a route, has a code and no text.
func reasonOf(err error) string {
	return cmp.Or(status.Convert(err).Message(), status.Code(err).String())
}

// replace replaces everything by the first update. That must be complete: what only comes in a later part must not seem to
// be gone.
func (d *Directory) replace(parts []*tunnelv1.DirectoryUpdate) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.clear()
	for _, part := range parts {
		d.add(part)
	}
	d.failure, d.lost, d.complete = nil, time.Time{}, true
	d.notify()
}

// apply applies a later update.
func (d *Directory) apply(update *tunnelv1.DirectoryUpdate) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.add(update)
	d.notify()
	if update.GetLeft() {
		d.left.Give()
	}
}

// settles is how long after a principal has been left connections may still be opened through it: other principals, and what routes to them,
// learn of it at the same time.
const settles = 2 * time.Second

// OnLeft calls leave whenever a principal shuts down whose agents are reached through others now, and once more when all others know that, until
// the context ends. Whoever has connections to agents leaves them then: else the principal waits for those that go through it for no reason.
func (d *Directory) OnLeft(ctx context.Context, leave func()) {
	var again <-chan time.Time
	left := d.left.Changed()
	for {
		select {
		case <-left:
			left, again = d.left.Changed(), time.After(settles)
		case <-again:
		case <-ctx.Done():
			return
		}
		leave()
	}
}

// add adds an update to what is known. mu is held.
func (d *Directory) add(update *tunnelv1.DirectoryUpdate) {
	if blocked := update.GetBlocklist(); blocked != nil {
		d.blocked = blocklist.Of(blocked.GetKeys())
	}
	for _, name := range update.GetRemoved() {
		d.remove(name)
	}
	for _, a := range update.GetAgents() {
		d.remove(a.GetName()) // its server or namespace may have changed
		d.agents[a.GetName()] = Agent{
			Name: a.GetName(), Connected: a.GetConnected(), Since: a.GetSince().AsTime(), Server: a.GetServer(), Build: a.GetBuild(),
		}
		if ns := a.GetNamespace(); ns != "" {
			d.namespaces[ns], d.spaces[a.GetName()] = a.GetName(), ns
		}
		if a.GetServer() != "" {
			d.servers[a.GetServer()] = a.GetName()
		}
	}
	for _, instance := range update.GetUnassigned() {
		d.unassign(instance)
	}
	for _, a := range update.GetAssigned() {
		d.unassign(a.GetInstance())
		to := assignment{a.GetAgent(), a.GetSpokeInstance()}
		d.assigned[a.GetInstance()], d.instances[to] = to, a.GetInstance()
	}
}

// notify wakes whoever waits for a change. mu is held.
func (d *Directory) notify() {
	d.changed.Give()
}

// remove forgets an agent, and nothing that another has by now: a server or a namespace may have gone from one to another.
func (d *Directory) remove(name string) {
	removeIf(d.servers, d.agents[name].Server, name)
	removeIf(d.namespaces, d.spaces[name], name)
	delete(d.spaces, name)
	delete(d.agents, name)
}

// unassign forgets whose an application is, and nothing of another that is called the same on the spoke by now.
func (d *Directory) unassign(instance string) {
	removeIf(d.instances, d.assigned[instance], instance)
	delete(d.assigned, instance)
}

// removeIf removes a key that has that value.
func removeIf[K comparable](m map[K]string, key K, value string) {
	if m[key] == value {
		delete(m, key)
	}
}

// Ready returns nil while there is a connection to the principal, and otherwise why there is none.
func (d *Directory) Ready() error {
	d.mu.RLock()
	defer d.mu.RUnlock()
	if d.failure == nil {
		return nil
	}
	return errors.New("principal: " + status.Convert(d.failure).Message())
}

// Lost returns nil while there is a connection to the principal, and otherwise why there is none, and since when. What the
// directory says of the agents' connections is then what was true until that time.
func (d *Directory) Lost() (since time.Time, reason error) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	if d.failure == nil {
		return time.Time{}, nil
	}
	return d.lost, errors.New(reasonOf(d.failure))
}

// Agent returns an agent, and whether there is one of that name.
func (d *Directory) Agent(name string) (Agent, bool) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	a, ok := d.agents[name]
	return a, ok
}

// Blocked returns the hub's blocklist. It fails while the principal has not sent it yet.
func (d *Directory) Blocked() (blocklist.List, error) {
	d.mu.RLock()
	known, list := d.complete, d.blocked
	d.mu.RUnlock()
	if !known {
		return list, d.Ready()
	}
	return list, nil
}

// Server returns the agent whose cluster has that address in Argo CD, if there is one.
func (d *Directory) Server(url string) (Agent, bool) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	a, ok := d.agents[d.servers[url]]
	return a, ok
}

// All returns all agents, sorted by name.
func (d *Directory) All() []Agent {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return slices.SortedFunc(maps.Values(d.agents), func(a, b Agent) int { return strings.Compare(a.Name, b.Name) })
}

// Owner returns the agent that an application belongs to, and its instance on the spoke. An instance is an application's name
// in Argo CD's Redis keys: NAMESPACE_NAME, or NAME in Argo CD's own namespace. The hub's own applications have no owner.
func (d *Directory) Owner(instance string) (agent, spokeInstance string, ok bool) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	a, ok := d.owner(instance)
	return a.agent, a.instance, ok
}

// owner is Owner while mu is held.
func (d *Directory) owner(instance string) (assignment, bool) {
	if a, ok := d.assigned[instance]; ok {
		return a, true
	}
	namespace, name, ok := strings.Cut(instance, "_") // no name contains it
	if !ok || name == "" {
		return assignment{}, false
	}
	agent, ok := d.namespaces[namespace]
	if !ok {
		return assignment{}, false
	}
	return assignment{agent, name}, true
}

// Hub returns the instance on the hub of an agent's application, by its instance on the spoke: the reverse of Owner. What has
// another owner is none of the agent's, whatever the principal said of namespaces.
func (d *Directory) Hub(agent, spokeInstance string) (instance string, ok bool) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	of := assignment{agent, spokeInstance}
	if namespace, ok := d.spaces[agent]; ok {
		instance = namespace + "_" + spokeInstance
	} else if instance, ok = d.instances[of]; !ok {
		return "", false
	}
	if owner, ok := d.owner(instance); !ok || owner != of {
		return "", false
	}
	return instance, true
}

// Changed returns a channel that is closed at the next change.
func (d *Directory) Changed() <-chan struct{} {
	return d.changed.Changed()
}
