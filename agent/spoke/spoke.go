// Package spoke says what of the spoke is shared with the hub, and reports changes of that.
package spoke

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/signal"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/argocd"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/converge"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/facets"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/mapping"
)

// maxWrites is how many writes to the spoke may be under way at a time. No kind of object can take more than a part of them.
const maxWrites = 128

// Spoke is the spoke's cluster, and what of it is shared with the hub.
type Spoke struct {
	options Options
	cluster facets.Spoke
	share   facets.Share
	peer    *converge.Peer
	workers *converge.Workers

	unshared signal.Signal // an application is not shared any more
	reshared signal.Signal // one that was there before is shared now

	others, otherHubs map[string]int // the replica objects for other agents, and of other hubs, that ReportOthers found last
}

// Options configure a Spoke.
type Options struct {
	Config *rest.Config
	// Namespace is that of Argo CD on the spoke.
	Namespace string
	// ApplicationNamespace is that of the applications that are followed, empty for all.
	ApplicationNamespace string
	Mode                 facets.Mode
	// Mapping says where the hub's applications are on the spoke.
	Mapping mapping.Mapping
	// Selector is what is shared, by labels.
	Selector labels.Selector
	// AdoptionPolicy says how the hub's applications are kept.
	AdoptionPolicy facets.AdoptionPolicy
	// ClosedNamespace is the one that the hub's applications may not deploy into, empty if there is none.
	ClosedNamespace string
	// OwnSecrets are names of Secrets that the agent takes its own settings from: see facets.Options.
	OwnSecrets []string
	// RefuseIntentSources says, of an autonomous agent, that the hub may only have the applications' own sources deployed.
	RefuseIntentSources bool
	// Agent returns the name by which the hub knows the agent, once the hub has said so.
	Agent func() string
	// ResyncEvery is the time between resyncs with the hub.
	ResyncEvery time.Duration
	// Guard returns the limits of the deletion guard; nil is the default ones.
	Guard    func() converge.Guard
	Observer converge.Observer
	Reporter facets.Reporter
	Logger   *slog.Logger
}

// New returns a spoke, of which nothing is known until Run runs.
func New(o Options) (*Spoke, error) {
	s := &Spoke{options: o, workers: converge.NewWorkers(maxWrites), unshared: signal.New(), reshared: signal.New()}
	cluster, err := facets.Open(facets.Options{
		Config: o.Config, Name: "spoke", Namespace: o.Namespace, ApplicationNamespace: o.ApplicationNamespace, Kinds: o.Mode.Kinds(),
		KeepStatus: true, Mapping: o.Mapping, Selector: o.Selector, AdoptionPolicy: o.AdoptionPolicy, Agent: o.Agent,
		ClosedNamespace: o.ClosedNamespace, OwnSecrets: o.OwnSecrets, RefuseIntentSources: o.RefuseIntentSources,
		Listener: (*events)(s), Reporter: o.Reporter,
	})
	if err != nil {
		return nil, fmt.Errorf("spoke: %w", err)
	}
	s.cluster = facets.Spoke{Cluster: cluster}
	s.share = s.cluster.Share(o.Mode)
	s.peer = converge.NewPeer(converge.Options{
		Sources: s.share.Sources, Replicas: s.share.Replicas, Observer: o.Observer, Workers: s.workers,
		ResyncEvery: o.ResyncEvery, Guard: o.Guard,
	})
	return s, nil
}

// Peer returns the hub as the spoke sees it.
func (s *Spoke) Peer() *converge.Peer { return s.peer }

// Run follows the spoke and applies what the hub shares with it, until the context ends.
func (s *Spoke) Run(ctx context.Context) {
	s.options.Logger.Info("Watching shared objects", "label_selector", s.options.Selector.String(), "mapping", s.options.Mapping.Name())
	var parts sync.WaitGroup
	parts.Go(func() { s.cluster.Run(ctx) })
	parts.Go(func() { s.workers.Run(ctx) })
	parts.Wait()
	s.peer.Close()
}

// Wait waits until all that is shared is known, and reports whether that came before the end of the context.
func (s *Spoke) Wait(ctx context.Context) bool { return s.cluster.Wait(ctx) }

// Ready returns nil once all that is shared is known, and otherwise why it is not.
func (s *Spoke) Ready() error { return s.cluster.Ready() }

// ToHub returns the function that maps the spoke's namespace to the hub's, nil if the Applications are defined on the hub.
func (s *Spoke) ToHub() func() argocd.Move {
	if s.options.Mode != facets.Autonomous {
		return nil
	}
	return s.cluster.ToHub
}

// Unshared gives a value after applications have ceased to be shared, for one receiver.
func (s *Spoke) Unshared() <-chan struct{} { return s.unshared }

// Reshared gives a value after applications have come to be shared that were there before, for one receiver.
func (s *Spoke) Reshared() <-chan struct{} { return s.reshared }

// ReportOthers logs which other agents and hubs have replica objects on a managed agent's spoke, each once as long as there are any. It
// is called when the hub has said this agent's name and the spoke is known, never twice at a time.
func (s *Spoke) ReportOthers() {
	if s.options.Mode != facets.Managed {
		return
	}
	before, hubsBefore := s.others, s.otherHubs
	s.others, s.otherHubs = s.cluster.Others()
	for theirs, objects := range s.others {
		if before[theirs] == 0 {
			s.options.Logger.Error("Found replica objects for another agent; they are left alone", "agent", s.options.Agent(),
				"other_agent", theirs, "objects", objects, "remedy", facets.RemedyForOthers(theirs))
		}
	}
	for theirs, objects := range s.otherHubs {
		if hubsBefore[theirs] == 0 {
			s.options.Logger.Warn("Found replica objects of another hub; those that this hub has too become this hub's, others are left alone",
				"other_hub", theirs, "objects", objects, "remedy", "if this is the wrong hub, stop the agent and correct the principal's address")
		}
	}
}

// Has reports whether the spoke has an application that may be shared, by what Argo CD calls it in Redis: NAMESPACE_NAME, or
// NAME in Argo CD's own namespace.
func (s *Spoke) Has(instance string) bool {
	app, ok := s.cluster.Store.Get(argocd.ParseInstance(instance, s.options.Namespace))
	return ok && s.cluster.Selects(&app.Head)
}

// events are the spoke's as a listener.
type events Spoke

func (e *events) spoke() *Spoke { return (*Spoke)(e) }

// ApplicationChanged implements facets.Listener.
func (e *events) ApplicationChanged(old, now *argocd.App) {
	e.spoke().noteSharing(old, now)
	app := now
	if app == nil {
		app = old
		e.share.Gone(old)
	}
	e.spoke().notifyPeer(e.share.Applications(app))
}

// noteSharing gives the signals of a change, which the cluster already shows. Both states may be nil.
func (s *Spoke) noteSharing(old, now *argocd.App) {
	had, has := old != nil && s.cluster.Selects(&old.Head), now != nil && s.cluster.Selects(&now.Head)
	switch {
	case had && !has:
		s.unshared.Give()
	case has && !had && old != nil:
		s.reshared.Give()
	}
}

// RecordChanged implements facets.Listener.
func (e *events) RecordChanged(kind facets.Kind, old, now *argocd.Record) {
	e.spoke().notifyPeer(e.share.Records(kind, old, now))
}

func (s *Spoke) notifyPeer(touched []facets.Touched) {
	for _, t := range touched {
		s.peer.Changed(t.Facet, t.Key)
	}
}

// ApplicationsVanished implements facets.Listener.
func (e *events) ApplicationsVanished(gone []*argocd.App) {
	e.spoke().unshared.Give()
	e.spoke().missing(e.share.Applications(gone...))
}

// RecordsVanished implements facets.Listener.
func (e *events) RecordsVanished(kind facets.Kind, gone []*argocd.Record) {
	e.spoke().missing(e.share.Records(kind, gone...))
}

// missing learns what a new list lacked.
func (s *Spoke) missing(touched []facets.Touched) {
	s.share.Missing(touched, func(t facets.Touched) { s.peer.Changed(t.Facet, t.Key) }, s.peer.Resync)
}
