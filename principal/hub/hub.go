// Package hub tells the service that serves agents what changed on the hub, and says what is shared with each agent.
package hub

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/kube"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/argocd"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/converge"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/facets"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/mapping"
)

// Listener is told of changes.
type Listener interface {
	// Changed says that an object that is shared with an agent changed, appeared or vanished, as far as a facet is concerned.
	Changed(agent string, f converge.Facet, key converge.Key)
	// Compare says that something is amiss that only a comparison can settle.
	Resync(agent string, facets ...converge.Facet)
}

// Options configure a Hub.
type Options struct {
	Config *rest.Config
	// Namespace is that of Argo CD.
	Namespace string
	Mapping   mapping.Mapping
	// Selector is what is shared, by labels.
	Selector labels.Selector
	// CreateNamespace, if set, creates the namespace for an agent's applications.
	CreateNamespace func(ctx context.Context, namespace string) error
	// Server returns the address of an agent's cluster in Argo CD, empty if it has none.
	Server func(agent string) string
	Events kube.Events
	// Directory takes which applications belong to which agent.
	Directory Directory
	Logger    *slog.Logger
}

// Hub is the hub's cluster, as far as it is shared.
type Hub struct {
	options   Options
	cluster   facets.Hub
	stamper   *facets.Stamper
	listener  Listener // set by Run, before anything can change
	strangers strangers

	mu     sync.RWMutex
	shares map[string]facets.Share // by agent, with whom something is shared. Guarded by mu
}

// New returns a hub, of which nothing is known until Run runs.
func New(o Options) (*Hub, error) {
	h := &Hub{options: o, shares: make(map[string]facets.Share)}
	cluster, err := facets.Open(facets.Options{
		Config: o.Config, Name: "hub", Namespace: o.Namespace, Mapping: o.Mapping, Selector: o.Selector, Kinds: facets.Kinds(),
		Group: h.agentOf, Keeping: facets.Keeping{CreateNamespace: o.CreateNamespace}, Listener: (*events)(h),
		Tell: (&facets.Telling{Logger: o.Logger, Warn: o.Events.Warn}).Tell,
	})
	if err != nil {
		return nil, fmt.Errorf("hub: %w", err)
	}
	h.cluster = facets.Hub{Cluster: cluster, Server: o.Server}
	h.stamper = facets.NewStamper(cluster.Applications, o.Logger)
	return h, nil
}

// Run follows the hub and tells the listener of changes, until the context ends.
func (h *Hub) Run(ctx context.Context, listener Listener) {
	h.listener = listener
	h.options.Logger.Info("Follow what is shared", "label_selector", h.options.Selector.String(), "mapping", h.options.Mapping.Name())
	var parts sync.WaitGroup
	parts.Go(func() { h.cluster.Run(ctx) })
	parts.Go(func() { h.stamper.Run(ctx) })
	parts.Wait()
}

// Ready returns nil once all that is shared is known, and otherwise why it is not.
func (h *Hub) Ready() error { return h.cluster.Ready() }

// Wait waits until all that is shared is known, and reports whether that came before the end of the context.
func (h *Hub) Wait(ctx context.Context) bool { return h.cluster.Wait(ctx) }

// Sharing returns what to share with each agent. What is asked of its applications is given names from then on; those of
// others, which belong to a controller on the hub, are left alone.
func (h *Hub) Sharing(resyncEvery time.Duration, observer func(agent string) converge.Observer,
) func(agent, mode string) converge.Options {
	return func(agent, mode string) converge.Options {
		share := h.cluster.Share(agent, facets.Mode(mode))
		h.mu.Lock()
		h.shares[agent] = share
		h.mu.Unlock()
		// With destination-based mapping only its mode says that an agent has a namespace of its own.
		h.options.Directory.SetNamespace(agent, share.Namespace)
		for app := range h.cluster.Store.Group(agent) {
			if share.Has(app) {
				h.stamper.Changed(app)
			}
			h.explainApplication(app)
		}
		return converge.Options{
			Sources: share.Sources, Replicas: share.Replicas, Observer: observer(agent), ResyncEvery: resyncEvery,
		}
	}
}

// AgentChanged says that the hub knows an agent's cluster by another address: projects are for agents by that too.
func (h *Hub) AgentChanged(agent string) {
	for app := range h.cluster.Store.Group(agent) {
		h.explainApplication(app)
	}
	if _, ok := h.share(agent); ok && h.listener != nil {
		h.listener.Resync(agent, facets.AppProject, facets.Repository, facets.RepoCreds)
	}
}

// agentOf returns the agent that an application is meant for, or whose it shows, empty if for none.
func (h *Hub) agentOf(app *argocd.App) string {
	if shows := app.Annotations[argocd.AnnotationAgent]; shows != "" {
		return shows
	}
	agent, _ := h.options.Mapping.Agent(app.Name, app.Destination())
	return agent
}

func (h *Hub) share(agent string) (facets.Share, bool) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	share, ok := h.shares[agent]
	return share, ok
}

// all returns what is shared, by agent.
func (h *Hub) all() map[string]facets.Share {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return maps.Clone(h.shares)
}

// events are the hub's as a listener.
type events Hub

func (e *events) hub() *Hub { return (*Hub)(e) }

// ApplicationChanged implements facets.Listener.
func (e *events) ApplicationChanged(old, now *argocd.App) {
	h := e.hub()
	elsewhere := old == nil || now == nil || h.agentOf(old) != h.agentOf(now)
	if now != nil {
		h.application(now, true)
	}
	if old != nil && elsewhere {
		h.application(old, false)
	}
	if now != nil {
		h.assign(now, true)
	} else {
		h.assign(old, false)
	}
	if now != nil && elsewhere {
		h.explainApplication(now)
	}
}

// application tells of an application's change to whom it belongs.
func (h *Hub) application(app *argocd.App, exists bool) {
	agent := h.agentOf(app)
	share, ok := h.share(agent)
	if !ok {
		return
	}
	if exists && share.Has(app) {
		h.stamper.Changed(app)
	}
	h.tell(agent, share.Applications(app))
}

// RecordChanged implements facets.Listener.
func (e *events) RecordChanged(kind facets.Kind, old, now *argocd.Record) {
	h := e.hub()
	h.explainRecord(kind, old, now)
	for agent, share := range h.all() {
		h.tell(agent, share.Records(kind, old, now))
	}
}

func (h *Hub) tell(agent string, touched []facets.Touched) {
	for _, t := range touched {
		h.listener.Changed(agent, t.Facet, t.Key)
	}
}

// ApplicationsVanished implements facets.Listener.
func (e *events) ApplicationsVanished(gone []*argocd.App) {
	h := e.hub()
	shares := h.all()
	theirs := make(map[string][]*argocd.App)
	for _, app := range gone {
		h.assign(app, false)
		agent := h.agentOf(app)
		theirs[agent] = append(theirs[agent], app)
	}
	for agent, apps := range theirs {
		if share, ok := shares[agent]; ok {
			h.missing(agent, share, share.Applications(apps...))
		}
	}
}

// RecordsVanished implements facets.Listener.
func (e *events) RecordsVanished(kind facets.Kind, gone []*argocd.Record) {
	h := e.hub()
	for agent, share := range h.all() {
		h.missing(agent, share, share.Records(kind, gone...))
	}
}

// missing is told what a new list lacked, as far as it concerns an agent.
func (h *Hub) missing(agent string, share facets.Share, touched []facets.Touched) {
	share.Missing(touched,
		func(t facets.Touched) { h.listener.Changed(agent, t.Facet, t.Key) },
		func(f converge.Facet) { h.listener.Resync(agent, f) })
}
