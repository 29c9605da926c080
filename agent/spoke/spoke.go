// Package spoke follows the spoke's applications and says what is shared with the hub.
package spoke

import (
	"context"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/argocd"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/converge"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/facets"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/follow"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/mapping"
)

// Spoke is the spoke's applications, and what of them is shared with the hub.
type Spoke struct {
	applications facets.Applications
	namespace    string // of Argo CD
	mapping      mapping.Mapping
	intents      facets.IntentReplica
	peer         *converge.Peer
}

// Options configure a Spoke.
type Options struct {
	Config *rest.Config
	// Namespace is that of Argo CD on the spoke.
	Namespace string
	// Mapping says where the hub's applications are on the spoke.
	Mapping mapping.Mapping
	// CompareEvery is the time between comparisons with the hub.
	CompareEvery time.Duration
	Observer     converge.Observer
}

// New returns a spoke, of which nothing is known until Run runs.
func New(o Options) (*Spoke, error) {
	client, err := argocd.NewClient(o.Config, argocd.Applications(), argocd.Scope{Namespace: o.Namespace})
	if err != nil {
		return nil, fmt.Errorf("spoke: %w", err)
	}
	s := &Spoke{namespace: o.Namespace, mapping: o.Mapping}
	s.applications = facets.Applications{
		Client: client,
		Store: follow.New(follow.Options[*argocd.Application, *argocd.App]{
			List: client.List, Watch: client.Watch,
			Kind:    &argocd.Application{},
			Reduce:  argocd.Reduce(true),
			Changed: s.changed, Vanished: s.vanished,
		}),
	}
	share := facets.Spoke{Applications: s.applications, Mapping: o.Mapping}
	applications := facets.NewApplicationReplica(share)
	s.intents = facets.NewIntentReplica(share)
	s.peer = converge.NewPeer(converge.Options{
		Sources: map[converge.Facet]converge.Origin{
			// What a spoke no longer tells of is made anew by its controllers; nothing of a user's is lost.
			facets.Status: {Source: facets.StatusSource{Spoke: share}, Unbraked: true},
		},
		Replicas: map[converge.Facet]converge.Holding{
			facets.Application: {Replica: applications, Retain: true, Recall: applications.Recall},
			facets.Intent:      {Replica: s.intents},
		},
		Observer:     o.Observer,
		CompareEvery: o.CompareEvery,
	})
	return s, nil
}

// Peer returns the hub as the spoke sees it. Its Run must run.
func (s *Spoke) Peer() *converge.Peer { return s.peer }

// Run follows the spoke until the context ends.
func (s *Spoke) Run(ctx context.Context) { s.applications.Store.Run(ctx) }

// Has reports whether the spoke has an application, by what Argo CD calls it in Redis: NAMESPACE_NAME, or NAME in Argo CD's
// own namespace.
func (s *Spoke) Has(instance string) bool {
	id := types.NamespacedName{Namespace: s.namespace, Name: instance}
	if namespace, name, ok := strings.Cut(instance, "_"); ok {
		id = types.NamespacedName{Namespace: namespace, Name: name}
	}
	_, ok := s.applications.Store.Get(id)
	return ok
}

// Synced is closed once all of the spoke's applications are known.
func (s *Spoke) Synced() <-chan struct{} { return s.applications.Store.Synced() }

// Ready returns nil once all of the spoke's applications are known, and otherwise why they are not.
func (s *Spoke) Ready() error {
	if err := s.applications.Store.Ready(); err != nil {
		return fmt.Errorf("applications on the spoke: %w", err)
	}
	return nil
}

// changed is told of every change.
func (s *Spoke) changed(old, now *argocd.App) {
	app := now
	if app == nil {
		app = old
	} else {
		s.intents.Saw(app)
	}
	key := s.mapping.FromSpoke(app.Name)
	for _, f := range []converge.Facet{facets.Application, facets.Intent, facets.Status} {
		s.peer.Changed(f, key)
	}
}

// vanished is told what a new list lacked. What came from the hub is created again; that statuses are gone is for a
// comparison to say.
func (s *Spoke) vanished(gone []*argocd.App) {
	for _, app := range gone {
		s.peer.Changed(facets.Application, s.mapping.FromSpoke(app.Name))
	}
	s.peer.Compare(facets.Status)
	s.peer.Compare(facets.Intent)
}
