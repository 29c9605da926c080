// Package peers makes several principals of one hub know which of them serves which agent. Each says what it holds, to each of the others;
// so an agent is served by the one that it came to last, and any of them reaches it, through that one.
//
// Nothing depends on it but speed and clarity: two principals that both believe for a moment that they serve an agent do no harm, since
// each of their writes has a precondition.
package peers

import (
	"maps"
	"slices"
	"sync"
	"time"

	peerv1 "github.com/argocd-agent-mesh/argocd-agent-mesh/api/peer/v1"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/signal"
)

// Kind is what a principal holds of an agent.
type Kind = peerv1.Kind

// The kinds.
const (
	Session = peerv1.Kind_KIND_SESSION // its Sync session
	Tunnel  = peerv1.Kind_KIND_TUNNEL  // its Listen stream
)

// Self is this principal, as the others see it.
type Self struct {
	// ID is of this process alone. It is part of the ids of dials.
	ID string
	// Name is that of the Pod or host.
	Name string
}

// key names one thing that at most one principal holds, in the end.
type key struct {
	kind  Kind
	agent string
}

// Holding is what a principal holds of an agent.
type Holding struct {
	// Principal is the ID of who holds it.
	Principal string
	// Epoch orders what several hold of the same agent. The greatest is the newest.
	Epoch uint64
	Since time.Time
	// About is what the agent says of itself.
	About
}

// About is what an agent says of itself.
type About struct {
	// Build is its version, and Mode, of a session, managed or autonomous.
	Build, Mode string
}

// newer reports whether a holding takes precedence over another: all principals must decide alike.
func (h Holding) newer(than Holding) bool {
	if h.Epoch != than.Epoch {
		return h.Epoch > than.Epoch
	}
	return h.Principal > than.Principal
}

// Roster is what this principal holds, and what the others say that they do. All methods may be called from several goroutines, and none
// blocks.
type Roster struct {
	self       Self
	superseded error

	mu         sync.Mutex
	local      map[key]*Lease
	remote     map[key]map[string]Holding // by principal. Guarded by mu
	principals map[string]struct{}        // the IDs of the others that are connected. Guarded by mu
	watchers   map[*watcher]struct{}      // guarded by mu
	draining   bool                       // this principal shuts down. Guarded by mu
	listeners  []func(kind Kind, agent string)
}

// NewRoster returns an empty roster. superseded is the reason that a stream is given which ends because the agent is served elsewhere by
// a newer one.
func NewRoster(self Self, superseded error) *Roster {
	return &Roster{
		self: self, superseded: superseded, local: make(map[key]*Lease), remote: make(map[key]map[string]Holding), principals: make(map[string]struct{}),
		watchers: make(map[*watcher]struct{}),
	}
}

// Self returns who this principal is.
func (r *Roster) Self() Self { return r.self }

// Subscribe has a function called after each change of who holds an agent; and, with the empty name for all agents, after one of which
// principals there are. It must be called before anything else is, and the function
// must not block, nor call the roster's Hold or a Lease's Release.
func (r *Roster) Subscribe(changed func(kind Kind, agent string)) {
	r.listeners = append(r.listeners, changed)
}

// Lease is what this principal holds of an agent.
type Lease struct {
	roster  *Roster
	key     key
	holding Holding
	end     func(error)
}

// Hold says that this principal serves an agent from now on. An older lease of the same counts no more. If a newer one begins at another
// principal, end is called with the reason, once at least; the caller then releases the lease.
//
// The epoch is the time in milliseconds, or one more than the greatest that is known for the agent. So clocks that differ cost an agent
// one connection more at worst, and no order is needed that all principals agree on.
func (r *Roster) Hold(kind Kind, agent string, about About, end func(error)) *Lease {
	now := time.Now()
	k := key{kind, agent}
	r.mu.Lock()
	epoch := uint64(now.UnixMilli())
	if older := r.local[k]; older != nil {
		epoch = max(epoch, older.holding.Epoch+1)
	}
	for _, h := range r.remote[k] {
		epoch = max(epoch, h.Epoch+1)
	}
	lease := &Lease{roster: r, key: k, holding: Holding{Principal: r.self.ID, Epoch: epoch, Since: now, About: about}, end: end}
	r.local[k] = lease
	r.changedLocally(k)
	r.mu.Unlock()
	r.notify(k)
	return lease
}

// Release says that the agent is not served any more.
func (l *Lease) Release() {
	r := l.roster
	r.mu.Lock()
	current := r.local[l.key] == l
	if current {
		delete(r.local, l.key)
		r.changedLocally(l.key)
	}
	r.mu.Unlock()
	if current {
		r.notify(l.key)
	}
}

// Drain has the others know that this principal shuts down.
func (r *Roster) Drain() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.draining = true
	for w := range r.watchers {
		w.changed.Give()
	}
}

// Draining reports whether this principal shuts down.
func (r *Roster) Draining() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.draining
}

func (r *Roster) notify(k key) {
	for _, changed := range r.listeners {
		changed(k.kind, k.agent)
	}
}

// Elsewhere returns the newest holding of an agent at another principal, and whether there is one.
func (r *Roster) Elsewhere(kind Kind, agent string) (Holding, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var newest Holding
	for _, h := range r.remote[key{kind, agent}] {
		if newest.Principal == "" || h.newer(newest) {
			newest = h
		}
	}
	return newest, newest.Principal != ""
}

// Held returns the newest holding of an agent at any principal, this one too, and whether there is one.
func (r *Roster) Held(kind Kind, agent string) (Holding, bool) {
	newest, found := r.Elsewhere(kind, agent)
	r.mu.Lock()
	defer r.mu.Unlock()
	if lease := r.local[key{kind, agent}]; lease != nil && (!found || lease.holding.newer(newest)) {
		return lease.holding, true
	}
	return newest, found
}

// HeldElsewhere reports whether another principal holds an agent, and not this one by something newer.
func (r *Roster) HeldElsewhere(kind Kind, agent string) bool {
	held, ok := r.Held(kind, agent)
	return ok && held.Principal != r.self.ID
}

// Leads reports whether this principal is the one of all to write what each of them would: the one that serves the agent or, if none
// does, the one with the least ID. While principals do not reach each other several may lead, and write the same.
func (r *Roster) Leads(agent string) bool {
	if held, ok := r.Held(Session, agent); ok {
		return held.Principal == r.self.ID
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for id := range r.principals {
		if id < r.self.ID {
			return false
		}
	}
	return true
}

// Principals returns the IDs of all principals, this one and those that are connected, sorted.
func (r *Roster) Principals() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := maps.Clone(r.principals)
	all[r.self.ID] = struct{}{}
	return slices.Sorted(maps.Keys(all))
}

// join notes that another principal is connected.
func (r *Roster) join(principal string) {
	r.mu.Lock()
	r.principals[principal] = struct{}{}
	r.mu.Unlock()
	r.notify(key{kind: Session})
}

// update takes in what another principal says. With replace, all that it said before is forgotten.
func (r *Roster) update(principal string, held map[key]Holding, released []key, replace bool) {
	changed := make(map[key]struct{})
	var over []*Lease
	r.mu.Lock()
	if replace {
		for k, by := range r.remote {
			if _, still := held[k]; !still && by[principal].Principal != "" {
				r.remove(k, principal)
				changed[k] = struct{}{}
			}
		}
	}
	for _, k := range released {
		r.remove(k, principal)
		changed[k] = struct{}{}
	}
	for k, h := range held {
		if r.remote[k] == nil {
			r.remote[k] = make(map[string]Holding)
		}
		r.remote[k][principal] = h
		changed[k] = struct{}{}
		if mine := r.local[k]; mine != nil && h.newer(mine.holding) {
			over = append(over, mine)
		}
	}
	r.mu.Unlock()
	for _, lease := range over {
		lease.end(r.superseded)
	}
	for k := range changed {
		r.notify(k)
	}
}

// remove forgets what a principal holds of an agent. r.mu is held.
func (r *Roster) remove(k key, principal string) {
	delete(r.remote[k], principal)
	if len(r.remote[k]) == 0 {
		delete(r.remote, k)
	}
}

// forget forgets a principal, and all that it holds.
func (r *Roster) forget(principal string) {
	r.mu.Lock()
	delete(r.principals, principal)
	r.mu.Unlock()
	r.update(principal, nil, nil, true)
	r.notify(key{kind: Session})
}

// watcher collects what this principal holds anew, or no more, since it was read last.
type watcher struct {
	keys    map[key]struct{} // guarded by Roster.mu
	changed signal.Signal
}

// changedLocally has watchers look. r.mu is held.
func (r *Roster) changedLocally(k key) {
	for w := range r.watchers {
		w.keys[k] = struct{}{}
		w.changed.Give()
	}
}

// watch returns a watcher to which all that this principal holds is new.
func (r *Roster) watch() *watcher {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := &watcher{keys: make(map[key]struct{}), changed: signal.New()}
	for k := range r.local {
		w.keys[k] = struct{}{}
	}
	r.watchers[w] = struct{}{}
	return w
}

func (r *Roster) unwatch(w *watcher) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.watchers, w)
}

// take returns what a watcher has not been told, and forgets that it has not.
func (r *Roster) take(w *watcher) (held map[key]Holding, released []key) {
	r.mu.Lock()
	defer r.mu.Unlock()
	held = make(map[key]Holding)
	for k := range w.keys {
		if lease := r.local[k]; lease != nil {
			held[k] = lease.holding
		} else {
			released = append(released, k)
		}
	}
	w.keys = make(map[key]struct{}) // a cleared one stays as large as the first update
	return held, released
}

// count returns how much this principal holds of a kind, and the others.
func (r *Roster) count(kind Kind) (here, elsewhere int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for k := range maps.Keys(r.local) {
		if k.kind == kind {
			here++
		}
	}
	for k := range maps.Keys(r.remote) {
		if k.kind == kind {
			elsewhere++
		}
	}
	return here, elsewhere
}
