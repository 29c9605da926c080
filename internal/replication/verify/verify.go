// Package verify compares a hub with a spoke: whether all that they share is equal, object by object. It looks at nothing but
// the two API servers, in two ways: through the same facets as the programs, for what these would find different; and at all
// that is where replica objects are, for what these take for equal, or for no replica object. So nobody but the programs may
// make Applications, projects or Secrets of repositories there.
package verify

import (
	"context"
	"errors"
	"log/slog"
	"sync"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/signal"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/argocd"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/facets"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/follow"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/mapping"
)

// Site is where one side's Argo CD is.
type Site struct {
	Config *rest.Config
	// Namespace is also the agent's own on a spoke, which is closed to the hub.
	Namespace string
	// Mapping is as this side's program has it.
	Mapping mapping.Mapping
}

// Pair is a hub and a spoke, and how they share.
type Pair struct {
	Hub, Spoke Site
	// Agent is the spoke's name on the hub.
	Agent    string
	Mode     facets.Mode
	Selector labels.Selector
	// Server is the address of the agent's cluster in Argo CD on the hub, empty if it has none.
	Server string
	// ApplicationNamespace is that of the spoke's applications that may be shared, empty for all.
	ApplicationNamespace string
}

// Check compares once, and returns what is not equal.
func (p Pair) Check(ctx context.Context) ([]Difference, error) {
	var found []Difference
	err := p.follow(ctx, func(differences []Difference) bool {
		found = differences
		return true
	})
	return found, err
}

// WaitEqual waits until all is equal, or until the context ends; then it returns what is not. The error says why nothing could be
// compared.
func (p Pair) WaitEqual(ctx context.Context) ([]Difference, error) {
	return p.WaitUntil(ctx, func(differences []Difference) bool { return len(differences) == 0 })
}

// WaitUntil is WaitEqual for who passes some differences over: it waits until those that there are will do.
func (p Pair) WaitUntil(ctx context.Context, enough func([]Difference) bool) ([]Difference, error) {
	var found []Difference
	compared := false
	err := p.follow(ctx, func(differences []Difference) bool {
		found, compared = differences, true
		return enough(differences)
	})
	if compared {
		return found, nil // or it is the end of the context, which is what the caller waited for
	}
	return nil, err
}

// follow compares whenever something has changed, until that is enough.
func (p Pair) follow(ctx context.Context, enough func([]Difference) bool) error {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	changed := changes{signal.New()}
	s, err := p.open(changed)
	if err != nil {
		return err
	}
	running.Go(func() { s.hub.Run(ctx) })
	running.Go(func() { s.spoke.Run(ctx) })
	running.Go(func() { s.secrets.Run(ctx) })
	if !s.hub.Wait(ctx) || !s.spoke.Wait(ctx) || !s.secrets.Wait(ctx) {
		return errors.Join(s.hub.Ready(), s.spoke.Ready(), s.secrets.Ready(), ctx.Err())
	}
	for !enough(s.compare()) {
		select {
		case <-changed.Signal:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// sides are what is known of both sides.
type sides struct {
	pair           Pair
	hub, spoke     *facets.Cluster
	onHub, onSpoke facets.Share
	// secrets are the spoke's, whatever their labels: one of a replica object is a replica object without them too.
	secrets *follow.Store[*argocd.Object, *argocd.Record]
}

// open returns both sides, of which nothing is known yet. All applications of the hub are in one group: a replica object is one
// whatever became of what the principal finds it by.
func (p Pair) open(changed changes) (sides, error) {
	s := sides{pair: p}
	var err error
	reporter := facets.NewLogReporter(slog.New(slog.DiscardHandler), nil, nil) // nothing is applied
	if s.hub, err = facets.Open(facets.Options{
		Config: p.Hub.Config, Name: "hub", Namespace: p.Hub.Namespace, Kinds: facets.Kinds(), Mapping: p.Hub.Mapping,
		Group: func(*argocd.App) string { return p.Agent }, Selector: p.Selector, Listener: changed,
		Reporter: reporter,
	}); err != nil {
		return s, err
	}
	if s.spoke, err = facets.Open(facets.Options{
		Config: p.Spoke.Config, Name: "spoke", Namespace: p.Spoke.Namespace, ApplicationNamespace: p.ApplicationNamespace,
		Kinds: p.Mode.Kinds(), KeepStatus: true, Mapping: p.Spoke.Mapping, Selector: p.Selector, Listener: changed, Agent: func() string { return p.Agent },
		ClosedNamespace: p.Spoke.Namespace, Reporter: reporter,
	}); err != nil {
		return s, err
	}
	client, err := argocd.NewClient(p.Spoke.Config, argocd.Secrets(), argocd.Scope{Namespace: p.Spoke.Namespace})
	if err != nil {
		return s, err
	}
	s.secrets = follow.New(follow.Options[*argocd.Object, *argocd.Record]{
		List: client.List, Watch: client.Watch, Kind: argocd.Secrets().New(), Reduce: argocd.ReduceObject,
		Changed: func(_, _ *argocd.Record) { changed.Give() }, Vanished: func([]*argocd.Record) { changed.Give() },
	})
	s.onHub = facets.Hub{Cluster: s.hub, Server: func(string) string { return p.Server }}.Share(p.Agent, p.Mode)
	s.onSpoke = facets.Spoke{Cluster: s.spoke}.Share(p.Mode)
	return s, nil
}

// changes learns of changes, and remembers that there was one.
type changes struct{ signal.Signal }

// ApplicationChanged implements facets.Listener.
func (c changes) ApplicationChanged(_, _ *argocd.App) { c.Give() }

// RecordChanged implements facets.Listener.
func (c changes) RecordChanged(facets.Kind, *argocd.Record, *argocd.Record) { c.Give() }

// ApplicationsVanished implements facets.Listener.
func (c changes) ApplicationsVanished([]*argocd.App) { c.Give() }

// RecordsVanished implements facets.Listener.
func (c changes) RecordsVanished(facets.Kind, []*argocd.Record) { c.Give() }
