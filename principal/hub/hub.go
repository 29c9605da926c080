// Package hub follows the hub's applications: it tells the service that serves agents which of them changed, and says
// what is shared with each agent.
package hub

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"k8s.io/client-go/rest"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/argocd"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/converge"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/facets"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/follow"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/mapping"
)

// Listener is told of changes.
type Listener interface {
	// Changed says that an agent's application changed, appeared or vanished.
	Changed(agent string, key converge.Key, facets ...converge.Facet)
	// Compare says that something is amiss that only a comparison can settle.
	Compare(agent string, facets ...converge.Facet)
}

// Hub is the hub's applications.
type Hub struct {
	applications facets.Applications
	stamper      *facets.Stamper
	mapping      mapping.Mapping
	listener     Listener // set by Run, before anything can change

	mu     sync.RWMutex
	agents map[string]bool // those with whom something is shared. Guarded by mu
}

// New returns a hub, of which nothing is known until Run runs.
func New(config *rest.Config, m mapping.Mapping, logger *slog.Logger) (*Hub, error) {
	client, err := argocd.NewClient(config, argocd.Applications(), argocd.Scope{})
	if err != nil {
		return nil, fmt.Errorf("hub: %w", err)
	}
	h := &Hub{mapping: m, agents: make(map[string]bool)}
	h.applications = facets.Applications{
		Client: client,
		Store: follow.New(follow.Options[*argocd.Application, *argocd.App]{
			List: client.List, Watch: client.Watch,
			Kind:   &argocd.Application{},
			Reduce: argocd.Reduce(false),
			Group: func(app *argocd.App) string {
				agent, _ := m.FromHub(app.Name)
				return agent
			},
			Changed: h.changed, Vanished: h.vanished,
		}),
	}
	h.stamper = facets.NewStamper(h.applications, logger)
	return h, nil
}

// Run follows the hub and tells the listener of changes, until the context ends.
func (h *Hub) Run(ctx context.Context, listener Listener) {
	h.listener = listener
	var parts sync.WaitGroup
	parts.Go(func() { h.applications.Store.Run(ctx) })
	parts.Go(func() { h.stamper.Run(ctx) })
	parts.Wait()
}

// Ready returns nil once all of the hub's applications are known, and otherwise why they are not.
func (h *Hub) Ready() error {
	if err := h.applications.Store.Ready(); err != nil {
		return fmt.Errorf("applications on the hub: %w", err)
	}
	return nil
}

// Sharing returns what to share with each agent. What is asked of its applications is given names from then on; those of
// others, which belong to a controller on the hub, are left alone.
func (h *Hub) Sharing(compareEvery time.Duration, observer func(agent string) converge.Observer) func(agent string) converge.Options {
	return func(agent string) converge.Options {
		h.mu.Lock()
		h.agents[agent] = true
		h.mu.Unlock()
		for app := range h.applications.Store.Group(agent) {
			h.stamper.Changed(app)
		}
		share := facets.Hub{Applications: h.applications, Agent: agent, Mapping: h.mapping}
		return converge.Options{
			Sources: map[converge.Facet]converge.Origin{
				facets.Application: {Source: facets.ApplicationSource{Hub: share}},
				facets.Intent:      {Source: facets.IntentSource{Hub: share}, Unbraked: true},
			},
			Replicas: map[converge.Facet]converge.Holding{
				facets.Status: {Replica: facets.StatusReplica{Hub: share}},
			},
			Observer:     observer(agent),
			CompareEvery: compareEvery,
		}
	}
}

// changed is told of every change.
func (h *Hub) changed(old, now *argocd.App) {
	if now != nil {
		if h.shares(h.agentOf(now)) {
			h.stamper.Changed(now)
		}
		h.tell(now)
	}
	if old != nil && (now == nil || h.agentOf(old) != h.agentOf(now)) {
		h.tell(old)
	}
}

func (h *Hub) shares(agent string) bool {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return h.agents[agent]
}

func (h *Hub) tell(app *argocd.App) {
	agent, key := h.mapping.FromHub(app.Name)
	h.listener.Changed(agent, key, facets.Application, facets.Intent, facets.Status)
}

func (h *Hub) agentOf(app *argocd.App) string {
	agent, _ := h.mapping.FromHub(app.Name)
	return agent
}

// vanished is told what a new list lacked.
func (h *Hub) vanished(gone []*argocd.App) {
	agents := make(map[string]bool)
	for _, app := range gone {
		agents[h.agentOf(app)] = true
	}
	for agent := range agents {
		h.listener.Compare(agent, facets.Application, facets.Intent, facets.Status)
	}
}
