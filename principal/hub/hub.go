// Package hub says what of the hub's cluster is shared with each agent, and notifies its subscribers of changes.
package hub

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/argocd"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/converge"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/facets"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/mapping"
)

// Listener is notified of changes of what is shared. It must not block.
type Listener interface {
	// Changed says that an object that is shared with an agent changed, appeared or vanished, as far as a facet is concerned.
	Changed(agent string, f converge.Facet, key converge.Key)
	// Resync asks for a resync: only that can find what changed.
	Resync(agent string, facets ...converge.Facet)
}

// Clusters are the agents' clusters that Argo CD on the hub knows.
type Clusters interface {
	// Server returns the address of an agent's cluster, empty if it has none.
	Server(agent string) string
	// Has reports whether an agent has a cluster Secret, valid or not.
	Has(agent string) bool
	// Wait waits until all are known, and reports whether that came before the end of the context.
	Wait(ctx context.Context) bool
}

// Options configure a Hub.
type Options struct {
	Config *rest.Config
	// API is the hub's API server. It is asked why objects go. If it is nil, somebody deleted each of them.
	API rest.Interface
	// Namespace is that of Argo CD.
	Namespace string
	Mapping   mapping.Mapping
	// Selector is what is shared, by labels.
	Selector labels.Selector
	// CreateNamespace, if set, creates the namespace for an agent's applications.
	CreateNamespace func(ctx context.Context, namespace string) error
	// MirrorRules say what is shown of what autonomous agents have.
	MirrorRules argocd.MirrorRules
	Clusters    Clusters
	// Session returns the mode of an agent that has a session at any principal of the hub, and whether it has one. Leads reports whether
	// this principal is the one to write what is true of an agent. ConnectionChanged is called when that may have changed.
	Session func(agent string) (mode string, connected bool)
	Leads   func(agent string) bool
	// Guard returns the limits of the deletion guard for an agent; nil for the default ones.
	Guard    func(agent string) converge.Guard
	Reporter facets.Reporter
	// Warn writes an Event.
	Warn facets.WarnFunc
	// Directory takes which applications belong to which agent.
	Directory Directory
	Logger    *slog.Logger
}

// Hub is the hub's cluster, as far as it is shared.
type Hub struct {
	options    Options
	cluster    facets.Hub
	intentIDs  *facets.IntentIDAssigner
	listeners  []Listener // only changed before Run
	unmanaged  unmanaged
	note       facets.Note // that this principal sets
	notes      *facets.Notes
	presence   presence
	collateral *collateral

	shares sync.Map // what is shared, a facets.Share, by agent
}

// New returns a hub, of which nothing is known until Run runs.
func New(o Options) (*Hub, error) {
	h := &Hub{options: o, collateral: newCollateral(o.API, o.Logger), note: facets.NoteOf(o.Mapping.Name()), presence: presence{agents: make(map[string]present)}}
	cluster, err := facets.Open(facets.Options{
		Config: o.Config, Name: "hub", Namespace: o.Namespace, Mapping: o.Mapping, Selector: o.Selector, Kinds: facets.Kinds(),
		Group: h.agentOf, AdoptionPolicy: facets.AdoptionPolicy{CreateNamespace: o.CreateNamespace}, Listener: (*events)(h),
		MirrorRules: o.MirrorRules,
		Reporter:    o.Reporter,
	})
	if err != nil {
		return nil, fmt.Errorf("hub: %w", err)
	}
	h.cluster = facets.Hub{Cluster: cluster, Server: o.Clusters.Server, HasAgent: h.isOurs, Collateral: h.collateral}
	h.intentIDs = facets.NewIntentIDAssigner(cluster.Applications, (*owners)(h), o.Logger)
	h.notes = facets.NewNotes(facets.NotesOptions{
		Note: h.note, Applications: cluster.Applications, AgentOf: h.agentOf, Want: h.wantNote, Agent: h.noteAgent, Noted: h.logNote, Warn: o.Warn, Logger: o.Logger,
	})
	return h, nil
}

// Subscribe adds a listener, which is notified of every change of what is shared. It must be called before Run, and before
// the clusters' Run.
func (h *Hub) Subscribe(l Listener) { h.listeners = append(h.listeners, l) }

// Run follows the hub until the context ends.
func (h *Hub) Run(ctx context.Context) {
	h.options.Logger.Info("Watching shared objects", "label_selector", h.options.Selector.String(), "mapping", h.options.Mapping.Name())
	var parts sync.WaitGroup
	parts.Go(func() { h.cluster.Run(ctx) })
	parts.Go(func() { h.intentIDs.Run(ctx) })
	parts.Go(func() { h.notes.Run(ctx) })
	parts.Go(func() { h.collateral.Run(ctx) })
	parts.Go(func() {
		if h.Wait(ctx) && h.options.Clusters.Wait(ctx) {
			h.StartupDone()
			h.options.Directory.SetComplete()
		}
	})
	parts.Wait()
}

// Wait waits until all that is shared is known, and reports whether that came before the end of the context.
func (h *Hub) Wait(ctx context.Context) bool { return h.cluster.Wait(ctx) }

// Ready returns nil once all that is shared is known, and otherwise why it is not.
func (h *Hub) Ready() error { return h.cluster.Ready() }

// Sharing returns what to share with each agent. What is asked of its applications is given names from then on; what is asked
// of others, which belong to a controller on the hub, is left alone.
func (h *Hub) Sharing(resyncEvery time.Duration, observer func(agent string) converge.Observer,
) func(agent, mode string) converge.Options {
	return func(agent, mode string) converge.Options {
		share := h.cluster.Share(agent, facets.Mode(mode))
		h.shares.Store(agent, share)
		// With destination-based mapping only its mode says that an agent has a namespace of its own.
		h.options.Directory.SetNamespace(agent, share.Namespace)
		for app := range h.cluster.Store.Group(agent) {
			h.intentIDs.Changed(nil, app)
			h.explainApplication(app)
		}
		h.intentIDs.Connected(agent)
		options := converge.Options{
			Sources: share.Sources, Replicas: share.Replicas, Observer: observer(agent), ResyncEvery: resyncEvery,
		}
		for _, f := range []converge.Facet{facets.Application, facets.Intent} {
			if source, ok := share.Sources[f]; ok && mode == string(facets.Managed) {
				source.Withholds = h.withholds(agent)
				share.Sources[f] = source
			}
		}
		if h.options.Guard != nil {
			options.Guard = func() converge.Guard { return h.options.Guard(agent) }
		}
		return options
	}
}

// Forget forgets what is shared with an agent that has neither a session nor a cluster any more, or has its session at another principal,
// until it connects again.
func (h *Hub) Forget(agent string) {
	h.shares.Delete(agent)
	h.options.Directory.SetNamespace(agent, h.namespaceOf(agent))
}

// namespaceOf returns the namespace on the hub whose applications are all an agent's, empty if there is none: that of its mode, as far as
// that is known here or at another principal.
func (h *Hub) namespaceOf(agent string) string {
	if mode, connected := h.options.Session(agent); connected && mode == string(facets.Autonomous) {
		return h.options.Mapping.Autonomous().HubNamespace(agent)
	}
	return h.cluster.NamespaceOf(agent)
}

// SetCluster implements clusters.Listener.
func (h *Hub) SetCluster(agent, _ string) {
	if h.presence.expect(agent, true) {
		h.notes.ChangedAgent(agent, awayAfter)
	}
	h.clusterChanged(agent)
}

// RemoveCluster implements clusters.Listener.
func (h *Hub) RemoveCluster(agent string) {
	h.presence.expect(agent, h.options.Clusters.Has(agent))
	h.clusterChanged(agent)
}

// clusterChanged takes in that the hub knows an agent's cluster by another address: projects are for agents by that too.
func (h *Hub) clusterChanged(agent string) {
	h.noteAgent(agent)
	for app := range h.cluster.Store.Group(agent) {
		h.explainApplication(app)
	}
	if _, ok := h.share(agent); ok {
		h.resync(agent, facets.AppProject, facets.Repository, facets.RepoCreds)
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

// owners are the hub as it says whose applications are.
type owners Hub

var _ facets.Owners = &owners{}

// OwnerOf implements facets.Owners.
func (o *owners) OwnerOf(app *argocd.App) (agent string, isShared bool) {
	h := (*Hub)(o)
	agent = app.Annotations[argocd.AnnotationAgent]
	if agent == "" {
		meant, allowed := h.options.Mapping.Agent(app.Name, app.Destination())
		if !allowed || !h.cluster.Selects(&app.Head) {
			return "", false
		}
		agent = meant
	}
	share, connected := h.share(agent)
	return agent, connected && share.Has(app)
}

// HasConnected implements facets.Owners.
func (o *owners) HasConnected(agent string) bool {
	_, connected := (*Hub)(o).share(agent)
	return connected
}

func (h *Hub) share(agent string) (facets.Share, bool) {
	found, _ := h.shares.Load(agent)
	share, ok := found.(facets.Share)
	return share, ok
}

// all yields what is shared, by agent.
func (h *Hub) all() iter.Seq2[string, facets.Share] {
	return func(yield func(string, facets.Share) bool) {
		h.shares.Range(func(agent, share any) bool { return yield(agent.(string), share.(facets.Share)) })
	}
}

// events are the hub's as a listener.
type events Hub

func (e *events) hub() *Hub { return (*Hub)(e) }

// ApplicationChanged implements facets.Listener.
func (e *events) ApplicationChanged(old, now *argocd.App) {
	h := e.hub()
	elsewhere := old == nil || now == nil || h.agentOf(old) != h.agentOf(now)
	h.intentIDs.Changed(old, now)
	switch {
	case now == nil:
		h.collateral.whenDecided(true, deletedApplications(old), func() { h.application(old) })
	case now.Deleting:
		h.collateral.whenDecided(false, deletedApplications(now), func() { h.application(now) })
	default:
		h.application(now)
	}
	if old != nil && now != nil && elsewhere {
		h.application(old)
	}
	if now != nil {
		h.assign(now, true)
	} else {
		h.assign(old, false)
	}
	if now != nil && elsewhere {
		h.explainApplication(now)
	}
	if now != nil {
		h.notes.Changed(now, noteAfter)
	}
}

// application notifies listeners that an application of an agent changed.
func (h *Hub) application(app *argocd.App) {
	agent := h.agentOf(app)
	if share, ok := h.share(agent); ok {
		h.notifyListeners(agent, share.Applications(app))
	}
}

// RecordChanged implements facets.Listener.
func (e *events) RecordChanged(kind facets.Kind, old, now *argocd.Record) {
	h := e.hub()
	h.explainRecord(kind, old, now)
	notify := func() {
		for agent, share := range h.all() {
			h.notifyListeners(agent, share.Records(kind, old, now))
		}
	}
	if now == nil {
		h.collateral.whenDecided(true, deletedRecords(kind, old), notify)
	} else {
		notify()
	}
}

func (h *Hub) notifyListeners(agent string, touched []facets.Touched) {
	for _, t := range touched {
		for _, l := range h.listeners {
			l.Changed(agent, t.Facet, t.Key)
		}
	}
}

func (h *Hub) resync(agent string, facets ...converge.Facet) {
	for _, l := range h.listeners {
		l.Resync(agent, facets...)
	}
}

// ApplicationsVanished implements facets.Listener.
func (e *events) ApplicationsVanished(gone []*argocd.App) {
	h := e.hub()
	theirs := make(map[string][]*argocd.App)
	for _, app := range gone {
		h.assign(app, false)
		h.intentIDs.Changed(app, nil)
		agent := h.agentOf(app)
		theirs[agent] = append(theirs[agent], app)
	}
	h.collateral.whenDecided(true, deletedApplications(gone...), func() {
		for agent, apps := range theirs {
			if share, ok := h.share(agent); ok {
				h.missing(agent, share, share.Applications(apps...))
			}
		}
	})
}

// RecordsVanished implements facets.Listener.
func (e *events) RecordsVanished(kind facets.Kind, gone []*argocd.Record) {
	h := e.hub()
	h.collateral.whenDecided(true, deletedRecords(kind, gone...), func() {
		for agent, share := range h.all() {
			h.missing(agent, share, share.Records(kind, gone...))
		}
	})
}

// missing learns what a new list lacked, as far as it concerns an agent.
func (h *Hub) missing(agent string, share facets.Share, touched []facets.Touched) {
	share.Missing(touched,
		func(t facets.Touched) { h.notifyListeners(agent, []facets.Touched{t}) },
		func(f converge.Facet) { h.resync(agent, f) })
}
