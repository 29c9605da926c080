package verify_test

import (
	"context"
	"iter"
	"maps"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/converge"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/facets"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/mapping"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/verify"
)

// states are what one side has of a facet.
type states map[converge.Key]converge.State

// All yields them.
func (s states) All() iter.Seq2[converge.Key, converge.State] { return maps.All(s) }

// source and replica are sides of which only All is asked.
type (
	source struct {
		converge.Source
		states
	}
	replica struct {
		converge.Replica
		states
	}
)

func (s source) All() iter.Seq2[converge.Key, converge.State]  { return s.states.All() }
func (r replica) All() iter.Seq2[converge.Key, converge.State] { return r.states.All() }

func state(uid, content string) converge.State {
	return converge.State{UID: uid, Version: converge.VersionOf([]byte(content))}
}

// shares returns a side that has originals of one facet and copies of another.
func shares(from converge.Facet, originals states, to converge.Facet, copies states) facets.Share {
	return facets.Share{
		Sources:  map[converge.Facet]converge.Origin{from: {Source: source{states: originals}}},
		Replicas: map[converge.Facet]converge.Holding{to: {Replica: replica{states: copies}}},
	}
}

func TestBothWaysAreCompared(t *testing.T) {
	t.Parallel()
	equal := state("1", "a")
	hub := shares(facets.Application, states{"same": equal, "missing": equal, "changed": equal, "another": equal},
		facets.Status, states{"same": equal, "left": equal})
	spoke := shares(facets.Status, states{"same": equal},
		facets.Application, states{"same": equal, "changed": state("1", "b"), "another": state("2", "a")})
	require.Equal(t, []verify.Difference{
		{Facet: facets.Application, Key: "another", Source: equal, Replica: state("2", "a")},
		{Facet: facets.Application, Key: "changed", Source: equal, Replica: state("1", "b")},
		{Facet: facets.Application, Key: "missing", Source: equal},
		{Facet: facets.Status, Key: "left", Replica: equal},
	}, verify.Compare(hub, spoke))
}

func TestWhatIsEqualHasNoDifference(t *testing.T) {
	t.Parallel()
	same := states{"a": state("1", "a"), "b": state("2", "b")}
	require.Empty(t, verify.Compare(shares(facets.Application, same, facets.Status, nil), shares(facets.Status, nil, facets.Application, same)))
}

func TestADifferenceSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	for want, d := range map[string]verify.Difference{
		"application guestbook: the copy is missing":                    {Source: state("1", "a")},
		"application guestbook: the copy should not be there":           {Replica: state("1", "a")},
		"application guestbook: the copy was made from another object ": {Source: state("1", "a"), Replica: state("2", "a")},
		"application guestbook: the copy differs ":                      {Source: state("1", "a"), Replica: state("1", "b")},
	} {
		d.Facet, d.Key = facets.Application, "guestbook"
		require.Contains(t, d.String(), want)
	}
}

// That nothing could be compared is not to be mistaken for two sides that are equal.
func TestASideThatCannotBeReachedIsAnError(t *testing.T) {
	t.Parallel()
	nowhere := verify.Site{Config: &rest.Config{Host: "http://127.0.0.1:0"}, Namespace: "argocd", Mapping: mapping.ByNamespace{}}
	pair := verify.Pair{Hub: nowhere, Spoke: nowhere, Agent: "berlin", Mode: facets.Managed}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := pair.Check(ctx)
	require.ErrorContains(t, err, "on the hub")
	_, err = pair.Settle(ctx)
	require.ErrorContains(t, err, "on the spoke")
}
