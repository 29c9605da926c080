package verify

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"slices"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/converge"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/facets"
)

// Difference is something that is not the same on both sides.
type Difference struct {
	Facet converge.Facet
	Key   converge.Key
	// Source is what there should be, Replica what there is; zero if nothing. A Replica without a UID does not say what it was
	// made from.
	Source, Replica converge.State
}

// What says in words what is with the copy.
func (d Difference) What() string {
	what := "differs"
	switch {
	case d.Source == converge.State{}:
		what = "should not be there"
	case d.Replica == converge.State{}:
		what = "is missing"
	case d.Replica.UID == "":
		what = "does not say what it was made from"
	case d.Source.UID != d.Replica.UID:
		what = "was made from another object"
	}
	return "the copy " + what
}

// String says what differs.
func (d Difference) String() string {
	return fmt.Sprintf("%s %s: %s (source %s, copy %s)", d.Facet, d.Key, d.What(), show(d.Source), show(d.Replica))
}

func show(s converge.State) string {
	if s == (converge.State{}) {
		return "nothing"
	}
	return s.UID + "@" + s.Version.String()
}

// compare returns what is different, sorted: what the programs would find different, and what is not as it should be although
// it says that it is.
func (s sides) compare() []Difference {
	var all []Difference
	for _, way := range []struct{ from, to facets.Share }{{s.onHub, s.onSpoke}, {s.onSpoke, s.onHub}} {
		for facet, origin := range way.from.Sources {
			replica, ok := way.to.Replicas[facet]
			if !ok {
				continue
			}
			all = append(all, differences(facet, origin.All(), replica.All())...)
			if copies, ok := s.replicaObjects(facet); ok {
				all = append(all, differences(facet, s.wanted(facet, origin), copies)...)
			}
		}
	}
	slices.SortStableFunc(all, func(a, b Difference) int {
		return cmp.Or(cmp.Compare(a.Facet, b.Facet), cmp.Compare(a.Key, b.Key))
	})
	return slices.CompactFunc(all, func(a, b Difference) bool { return a.Facet == b.Facet && a.Key == b.Key })
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
