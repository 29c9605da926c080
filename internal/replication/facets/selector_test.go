package facets_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/argocd"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/facets"
)

func TestLabelSelectorExcludesIgnored(t *testing.T) {
	t.Parallel()
	for text, c := range map[string]struct{ in, out []labels.Set }{
		"": {
			in:  []labels.Set{nil, {"team": "blue"}, {argocd.LabelIgnore: "false"}, {argocd.LabelIgnore: ""}},
			out: []labels.Set{{argocd.LabelIgnore: "true"}, {argocd.LabelIgnore: "true", "team": "blue"}},
		},
		"team=blue":          {in: []labels.Set{{"team": "blue"}}, out: []labels.Set{nil, {"team": "red"}, {argocd.LabelIgnore: "true", "team": "blue"}}},
		"team,env notin (x)": {in: []labels.Set{{"team": "", "env": "y"}, {"team": "z"}}, out: []labels.Set{nil, {"team": "z", "env": "x"}}},
	} {
		selector, err := facets.ParseSelector(text)
		require.NoError(t, err, text)
		require.NoError(t, facets.CheckSelector(text))
		for _, set := range c.in {
			require.True(t, selector.Matches(set), "%q: %v", text, set)
		}
		for _, set := range c.out {
			require.False(t, selector.Matches(set), "%q: %v", text, set)
		}
	}
}

func TestMalformedLabelSelector(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"a=b=c", "team in", "=", "a b", "é=1"} {
		_, err := facets.ParseSelector(text)
		require.Error(t, err, text)
		require.ErrorContains(t, facets.CheckSelector(text), "want a label selector, such as team=blue,env!=test: ")
	}
}

// Selectors of both sides are compared by their meaning, not by their spelling.
func TestEquivalentLabelSelectorsAreEqual(t *testing.T) {
	t.Parallel()
	for _, same := range [][2]string{
		{"", " "}, {"a=b", "a==b"}, {"a=b,c=d", "c = d , a = b"}, {"a in (x,y)", "a in (y, x)"}, {"a=b", "a in (b)"},
	} {
		require.Equal(t, facets.CanonicalSelector(same[0]), facets.CanonicalSelector(same[1]), same)
	}
	for _, other := range [][2]string{{"", "a=b"}, {"a=b", "a!=b"}, {"a=b", "a=c"}, {"a", "!a"}, {"a in (x,y)", "a in (x)"}} {
		require.NotEqual(t, facets.CanonicalSelector(other[0]), facets.CanonicalSelector(other[1]), other)
	}
}
