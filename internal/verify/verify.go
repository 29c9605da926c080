// Package verify compares a hub with a spoke: whether all that they share is equal, object by object. It looks at nothing
// but the two API servers, through the same facets as the programs do.
package verify

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/argocd"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/converge"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/facets"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/mapping"
)

// Site is where one side's Argo CD is.
type Site struct {
	Config    *rest.Config
	Namespace string
	// Mapping is as this side's program has it.
	Mapping mapping.Mapping
}

// Pair is a hub and a spoke, and how they share. Mapping, Mode and Selector must be what the programs have.
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

// Difference is something that is not the same on both sides.
type Difference struct {
	Facet converge.Facet
	Key   converge.Key
	// Source is what there should be, Replica what there is; zero if nothing.
	Source, Replica converge.State
}

// String tells people what is wrong.
func (d Difference) String() string {
	what := "differs"
	switch {
	case d.Source == converge.State{}:
		what = "should not be there"
	case d.Replica == converge.State{}:
		what = "is missing"
	case d.Source.UID != d.Replica.UID:
		what = "was made from another object"
	}
	return fmt.Sprintf("%s %s: the copy %s (source %s, copy %s)", d.Facet, d.Key, what, show(d.Source), show(d.Replica))
}

func show(s converge.State) string {
	if s == (converge.State{}) {
		return "nothing"
	}
	return s.UID + "@" + s.Version.String()
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

// Settle waits until all is equal, or until the context ends; then it returns what is not. The error says why nothing could be
// compared.
func (p Pair) Settle(ctx context.Context) ([]Difference, error) {
	var found []Difference
	err := p.follow(ctx, func(differences []Difference) bool {
		found = differences
		return len(differences) == 0
	})
	if found != nil {
		return found, nil // the end of the context, which is what the caller waited for
	}
	return nil, err
}

// follow compares whenever something has changed, until that is enough.
func (p Pair) follow(ctx context.Context, enough func([]Difference) bool) error {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	news := make(changes, 1)
	hub, err := facets.Open(facets.Options{
		Config: p.Hub.Config, Name: "hub", Namespace: p.Hub.Namespace, Kinds: facets.Kinds(), Mapping: p.Hub.Mapping,
		Group: func(app *argocd.App) string {
			agent, _ := p.Hub.Mapping.Agent(app.Name, app.Destination())
			return agent
		},
		Selector: p.Selector, Listener: news,
	})
	if err != nil {
		return err
	}
	spoke, err := facets.Open(facets.Options{
		Config: p.Spoke.Config, Name: "spoke", Namespace: p.Spoke.Namespace, ApplicationNamespace: p.ApplicationNamespace,
		Kinds: p.Mode.Kinds(), KeepStatus: true, Mapping: p.Spoke.Mapping, Selector: p.Selector, Listener: news,
		Agent: func() string { return p.Agent },
	})
	if err != nil {
		return err
	}
	running.Go(func() { hub.Run(ctx) })
	running.Go(func() { spoke.Run(ctx) })
	if !hub.Wait(ctx) || !spoke.Wait(ctx) {
		return errors.Join(hub.Ready(), spoke.Ready(), ctx.Err())
	}
	onHub := facets.Hub{Cluster: hub, Server: func(string) string { return p.Server }}.Share(p.Agent, p.Mode)
	onSpoke := facets.Spoke{Cluster: spoke}.Share(p.Mode)
	for !enough(Compare(onHub, onSpoke)) {
		select {
		case <-news:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// Compare returns what is different between what two sides share, sorted.
func Compare(hub, spoke facets.Share) []Difference {
	var all []Difference
	for _, way := range []struct{ from, to facets.Share }{{hub, spoke}, {spoke, hub}} {
		for facet, origin := range way.from.Sources {
			if holding, ok := way.to.Replicas[facet]; ok {
				all = append(all, differences(facet, origin.All(), holding.All())...)
			}
		}
	}
	slices.SortFunc(all, func(a, b Difference) int {
		return cmp.Or(cmp.Compare(a.Facet, b.Facet), cmp.Compare(a.Key, b.Key))
	})
	return all
}

// differences compares one facet.
func differences(facet converge.Facet, source, replica iter.Seq2[converge.Key, converge.State]) []Difference {
	should := maps.Collect(source)
	var found []Difference
	for key, state := range replica {
		if should[key] != state {
			found = append(found, Difference{facet, key, should[key], state})
		}
		delete(should, key)
	}
	for key, state := range should {
		found = append(found, Difference{Facet: facet, Key: key, Source: state})
	}
	return found
}

// changes is told of changes, and remembers that there was one.
type changes chan struct{}

func (c changes) tell() {
	select {
	case c <- struct{}{}:
	default:
	}
}

// ApplicationChanged implements facets.Listener.
func (c changes) ApplicationChanged(_, _ *argocd.App) { c.tell() }

// RecordChanged implements facets.Listener.
func (c changes) RecordChanged(facets.Kind, *argocd.Record, *argocd.Record) { c.tell() }

// ApplicationsVanished implements facets.Listener.
func (c changes) ApplicationsVanished([]*argocd.App) { c.tell() }

// RecordsVanished implements facets.Listener.
func (c changes) RecordsVanished(facets.Kind, []*argocd.Record) { c.tell() }
