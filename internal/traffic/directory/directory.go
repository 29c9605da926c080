// Package directory tells the hub's components which agents there are, and what on the hub belongs to which: what a principal
// says of that, kept in memory.
package directory

import (
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
)

// Agent is an agent as the hub knows it.
type Agent struct {
	Name      string
	Connected bool
	// Since is when it was connected or lost, or when the principal that tells so started.
	Since time.Time
	// Server is the address of the agent's cluster in Argo CD on the hub, empty if it has none.
	Server string
	// Build is the version of the agent that is or was connected.
	Build string
}

// Roster is what a principal says. It is empty until Run runs, and keeps what was said last while no principal can be
// reached. It is safe for concurrent use.
type Roster struct {
	client tunnelv1.RelayClient
	logger *slog.Logger

	mu         sync.RWMutex
	agents     map[string]Agent
	namespaces map[string]string     // agents' names, by the namespace that is theirs
	spaces     map[string]string     // the reverse
	servers    map[string]string     // agents' names, by their servers
	assigned   map[string]assignment // by instance
	instances  map[assignment]string // the reverse
	changed    chan struct{}         // closed at the next change
	failure    error                 // why the principal is not heard; nil while it is
}

// assignment is the agent and the instance on its spoke of an application.
type assignment struct{ agent, instance string }

// New returns an empty roster, which asks over a connection to the principal.
func New(principal grpc.ClientConnInterface, logger *slog.Logger) *Roster {
	r := &Roster{
		client: tunnelv1.NewRelayClient(principal), logger: logger,
		changed: make(chan struct{}), failure: errors.New("the principal was not heard yet"),
	}
	r.clear()
	return r
}

// clear forgets everything. mu is held, or nobody else has r.
func (r *Roster) clear() {
	r.agents, r.servers = make(map[string]Agent), make(map[string]string)
	r.namespaces, r.spaces = make(map[string]string), make(map[string]string)
	r.assigned, r.instances = make(map[string]assignment), make(map[assignment]string)
}

// Waits between attempts to reach the principal, doubled from the first up to the last.
const (
	firstWait = 250 * time.Millisecond
	lastWait  = 15 * time.Second
)

// Run listens to the principal until the context ends.
func (r *Roster) Run(ctx context.Context) {
	wait := firstWait
	for {
		heard, err := r.listen(ctx)
		if ctx.Err() != nil {
			return
		}
		if heard {
			wait = firstWait
		}
		r.logger.Warn("Not connected to the principal", "reason", status.Convert(err).Message(), "retry", wait.String())
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

// listen listens until the principal ends the call, and reports whether it said anything.
func (r *Roster) listen(ctx context.Context) (heard bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := r.client.Watch(ctx, &tunnelv1.WatchRequest{})
	var parts []*tunnelv1.Roster // of what there is at first
	for err == nil {
		var said *tunnelv1.Roster
		if said, err = stream.Recv(); err != nil {
			break
		}
		if heard {
			r.take(said)
			continue
		}
		if parts = append(parts, said); !said.GetMore() {
			r.takeAll(parts)
			parts, heard = nil, true
			r.logger.Info("Connected to the principal", "agents", len(r.All()))
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failure = err
	r.tell()
	return heard, err
}

// takeAll takes what the principal says that there is, in place of what was known. Until all of that is there, what was
// known holds: nobody is to be told that something is no more because it comes in a later part.
func (r *Roster) takeAll(parts []*tunnelv1.Roster) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.clear()
	for _, part := range parts {
		r.add(part)
	}
	r.failure = nil
	r.tell()
}

// take takes what the principal says that has changed.
func (r *Roster) take(said *tunnelv1.Roster) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.add(said)
	r.tell()
}

// add adds to what is known. mu is held.
func (r *Roster) add(said *tunnelv1.Roster) {
	for _, name := range said.GetRemoved() {
		r.remove(name)
	}
	for _, a := range said.GetAgents() {
		r.remove(a.GetName()) // what was its may be no more
		r.agents[a.GetName()] = Agent{
			Name: a.GetName(), Connected: a.GetConnected(), Since: a.GetSince().AsTime(), Server: a.GetServer(), Build: a.GetBuild(),
		}
		if ns := a.GetNamespace(); ns != "" {
			r.namespaces[ns], r.spaces[a.GetName()] = a.GetName(), ns
		}
		if a.GetServer() != "" {
			r.servers[a.GetServer()] = a.GetName()
		}
	}
	for _, instance := range said.GetUnassigned() {
		r.unassign(instance)
	}
	for _, a := range said.GetAssigned() {
		r.unassign(a.GetInstance())
		to := assignment{a.GetAgent(), a.GetSpokeInstance()}
		r.assigned[a.GetInstance()], r.instances[to] = to, a.GetInstance()
	}
}

// tell tells whoever waits for a change. mu is held.
func (r *Roster) tell() {
	close(r.changed)
	r.changed = make(chan struct{})
}

func (r *Roster) remove(name string) {
	delete(r.servers, r.agents[name].Server)
	delete(r.namespaces, r.spaces[name])
	delete(r.spaces, name)
	delete(r.agents, name)
}

func (r *Roster) unassign(instance string) {
	delete(r.instances, r.assigned[instance])
	delete(r.assigned, instance)
}

// Ready returns nil while the principal is heard, and otherwise why it is not.
func (r *Roster) Ready() error {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if r.failure == nil {
		return nil
	}
	return errors.New("principal: " + status.Convert(r.failure).Message())
}

// Agent returns an agent, and whether there is one of that name.
func (r *Roster) Agent(name string) (Agent, bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	a, ok := r.agents[name]
	return a, ok
}

// Known reports whether there is an agent of that name. It is an error when no principal is there to say, unless one said
// so before.
func (r *Roster) Known(name string) (bool, error) {
	if _, ok := r.Agent(name); ok {
		return true, nil
	}
	return false, r.Ready()
}

// Server returns the agent whose cluster has that address in Argo CD, if there is one.
func (r *Roster) Server(url string) (Agent, bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	a, ok := r.agents[r.servers[url]]
	return a, ok
}

// All returns all agents, sorted by name.
func (r *Roster) All() []Agent {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return slices.SortedFunc(maps.Values(r.agents), func(a, b Agent) int { return strings.Compare(a.Name, b.Name) })
}

// Owner returns whose an application is, and what its instance is called on the spoke. An instance is what Argo CD calls
// an application in Redis: NAMESPACE_NAME, or NAME in Argo CD's own namespace. There is no owner of what belongs to the
// hub itself.
func (r *Roster) Owner(instance string) (agent, spokeInstance string, ok bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if a, ok := r.assigned[instance]; ok {
		return a.agent, a.instance, true
	}
	namespace, name, ok := strings.Cut(instance, "_") // which is in no name
	if !ok || name == "" {
		return "", "", false
	}
	if agent, ok = r.namespaces[namespace]; !ok {
		return "", "", false
	}
	return agent, name, true
}

// Hub returns what an application of an agent is called on the hub, by its instance on the spoke: the reverse of Owner.
func (r *Roster) Hub(agent, spokeInstance string) (instance string, ok bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if namespace, ok := r.spaces[agent]; ok {
		return namespace + "_" + spokeInstance, true
	}
	instance, ok = r.instances[assignment{agent, spokeInstance}]
	return instance, ok
}

// Changed returns a channel that is closed at the next change.
func (r *Roster) Changed() <-chan struct{} {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.changed
}
