package routes

import (
	"container/list"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/xds/resources"
)

const (
	// strangersFor is how long a host stays that was asked for and that no principal holds. Envoy does not say when it needs one no more.
	strangersFor = 10 * time.Minute
	// maxName is the longest name of a resource that is answered. No agent's is as long.
	maxName = 512
)

// hosts are Envoy's virtual hosts: those of agents that a principal holds, and strangers, which are those that were asked for besides. Envoy
// holds a request for a host until it is given one, so each name is answered.
type hosts struct {
	*cache.LinearCache

	domain string // of agents
	max    int    // strangers

	mu        sync.Mutex
	held      map[string]string        // the principal that holds an agent, by the agent's name. Guarded by mu
	strangers map[string]*list.Element // by the names of resources. Guarded by mu
	oldest    *list.List               // of strangers, in the order in which they were asked for. Guarded by mu
}

// stranger is a host that no principal is known to hold.
type stranger struct {
	name  string
	asked time.Time
}

func newHosts(domain string, limit int, version string) *hosts {
	return &hosts{
		LinearCache: cache.NewLinearCache(resource.VirtualHostType, cache.WithVersionPrefix(version)), domain: domain, max: limit,
		held: make(map[string]string), strangers: make(map[string]*list.Element), oldest: list.New(),
	}
}

// move says which principals hold agents from now on, empty for none, all in one update.
func (h *hosts) move(agents map[string]string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	changed := make(map[string]types.Resource, len(agents))
	var gone []string
	for agent, principal := range agents {
		if h.held[agent] == principal {
			continue
		}
		domain := agent + "." + h.domain
		name := resources.HostName(domain)
		if principal == "" {
			delete(h.held, agent)
			changed[name] = resources.ToAny(domain)
			gone = append(gone, h.estrange(name)...)
			continue
		}
		h.held[agent] = principal
		h.forget(name)
		changed[name] = resources.ToPrincipal(domain, principal)
	}
	return h.update(changed, gone)
}

// update changes the resources in one update. mu is held.
func (h *hosts) update(changed map[string]types.Resource, gone []string) error {
	for _, name := range gone {
		delete(changed, name)
	}
	if len(changed)+len(gone) == 0 {
		return nil
	}
	return h.UpdateResources(changed, gone)
}

// estrange notes that a host is a stranger, and returns those that there is no more room for. mu is held.
func (h *hosts) estrange(name string) (gone []string) {
	h.strangers[name] = h.oldest.PushBack(stranger{name, time.Now()})
	for len(h.strangers) > h.max {
		gone = append(gone, h.forgetOldest())
	}
	return gone
}

// forget forgets a stranger, if it is one. mu is held.
func (h *hosts) forget(name string) {
	if element := h.strangers[name]; element != nil {
		h.oldest.Remove(element)
		delete(h.strangers, name)
	}
}

// forgetOldest forgets the stranger that was asked for first, and returns its name. mu is held.
func (h *hosts) forgetOldest() string {
	name := asStranger(h.oldest.Front()).name
	h.forget(name)
	return name
}

func asStranger(element *list.Element) stranger {
	s, _ := element.Value.(stranger) // there is nothing else in the list
	return s
}

// age removes strangers that were asked for long ago. Envoy asks again for those that it still needs.
func (h *hosts) age(now time.Time) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	var gone []string
	for h.oldest.Len() > 0 && now.Sub(asStranger(h.oldest.Front()).asked) >= strangersFor {
		gone = append(gone, h.forgetOldest())
	}
	return h.update(nil, gone)
}

// counts returns how many hosts there are that a principal holds, and how many strangers.
func (h *hosts) counts() (held, strangers int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.held), len(h.strangers)
}

// holders returns which principal holds each agent.
func (h *hosts) holders() map[string]string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return maps.Clone(h.held)
}

// CreateDeltaWatch implements [cache.ConfigWatcher].
func (h *hosts) CreateDeltaWatch(request *cache.DeltaRequest, subscription cache.Subscription, out chan cache.DeltaResponse) (func(), error) {
	asked := request.GetResourceNamesSubscribe()
	if request.GetResponseNonce() == "" && len(asked) == 0 {
		// Envoy's first request names nothing, and its listener waits for the answer, 15 s at most. An empty one does not end the wait, one that
		// removes any name of the RouteConfiguration does.
		out <- &cache.DeltaPassthroughResponse{
			DeltaRequest: request, NextVersionMap: maps.Clone(subscription.ReturnedResources()),
			DeltaDiscoveryResponse: &discoveryv3.DeltaDiscoveryResponse{TypeUrl: resource.VirtualHostType, RemovedResources: []string{resources.HostName("-")}},
		}
		return nil, nil //nolint:nilnil // there is nothing to cancel
	}
	h.mu.Lock() // no name may be removed between its answer and the watch
	defer h.mu.Unlock()
	if err := h.answer(asked); err != nil {
		return nil, err
	}
	return h.LinearCache.CreateDeltaWatch(request, subscription, out)
}

// answer sees to it that there is a host for each of the names, which are hostNames. mu is held.
func (h *hosts) answer(names []string) error {
	added := make(map[string]types.Resource)
	var gone []string
	for _, name := range names {
		if h.strangers[name] != nil {
			continue
		}
		domain := strings.TrimPrefix(name, resources.Routes+"/")
		agent, ok := h.agentOf(domain)
		switch {
		case !ok:
			added[name] = resources.NotFound(domain)
		case h.held[agent] != "":
			continue
		default:
			added[name] = resources.ToAny(domain)
		}
		gone = append(gone, h.estrange(name)...)
	}
	return h.update(added, gone)
}

// agentOf returns the agent that a domain is of, and whether it may be one's.
func (h *hosts) agentOf(domain string) (agent string, ok bool) {
	name, ok := strings.CutSuffix(domain, "."+h.domain)
	if !ok {
		return "", false
	}
	parsed, err := identity.ParseAgent(name)
	return string(parsed), err == nil
}

// hostNames returns those of the names that may be of virtual hosts. A "*", which Envoy adds when it comes back after a reconnect, and an
// "agents/*" stand for all agents, and would make a client keep them for ever; any other name would only be remembered.
func hostNames(names []string) []string {
	return slices.DeleteFunc(names, func(name string) bool {
		domain, ours := strings.CutPrefix(name, resources.Routes+"/")
		return !ours || strings.Contains(domain, "*") || len(name) > maxName
	})
}
