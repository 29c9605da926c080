package hub

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/argocd"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/facets"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/mapping"
)

// byDestination maps so, and allows the namespaces of teams.
func byDestination() mapping.Mapping {
	return mapping.ByDestination{Hub: "argocd", Allowed: func(namespace string) bool { return strings.HasPrefix(namespace, "team-") }}
}

// becomes has a hub hear of an application, at NAMESPACE/NAME, as somebody has written it.
func (h *Hub) becomes(t *testing.T, r *revision, place, destination string, changes ...func(*metav1.ObjectMeta)) *argocd.App {
	t.Helper()
	meta := r.of("", nil)
	meta.Namespace, meta.Name, _ = strings.Cut(place, "/")
	for _, change := range changes {
		change(&meta)
	}
	app, err := h.cluster.Store.Wrote(&argocd.Application{
		ObjectMeta: meta, Spec: fmt.Appendf(nil, `{"destination":{"name":%q}}`, destination),
	})
	require.NoError(t, err)
	return app
}

func ignored(m *metav1.ObjectMeta) { m.Labels = map[string]string{argocd.LabelIgnore: "true"} }

func shown(m *metav1.ObjectMeta) {
	m.Annotations = map[string]string{argocd.AnnotationSourceUID: "on-spoke"}
}

func TestWhoseAnApplicationIsByItsInstance(t *testing.T) {
	t.Parallel()
	h, _ := aHubThatMaps(t, byDestination())
	h.connects("rome", facets.Autonomous)
	var r revision
	h.becomes(t, &r, "argocd/shop", "berlin")
	h.becomes(t, &r, "team-a/shop", "berlin")
	h.becomes(t, &r, "kitchen/shop", "berlin")
	h.becomes(t, &r, "team-a/own", "in-cluster")
	h.becomes(t, &r, "team-a/left", "berlin", ignored)
	h.becomes(t, &r, "rome/shop", "rome", shown)
	h.becomes(t, &r, "team-a/mirror", "berlin", func(m *metav1.ObjectMeta) {
		m.Annotations = map[string]string{argocd.AnnotationAgent: "rome"}
	})
	for instance, want := range map[string][2]string{
		"shop":          {"berlin", "shop"},
		"team-a_shop":   {"berlin", "team-a_shop"},
		"kitchen_shop":  {}, // which is not allowed
		"team-a_own":    {},
		"team-a_left":   {},
		"rome_shop":     {}, // the namespace tells that
		"team-a_mirror": {}, // only shows what another agent has
		"nothing":       {},
	} {
		agent, onSpoke := h.Assigned(instance)
		require.Equal(t, want, [2]string{agent, onSpoke}, instance)
	}
	require.ElementsMatch(t, []string{"shop", "team-a_shop", "kitchen_shop", "team-a_left"}, slices.Collect(h.Instances("berlin")))
	require.Empty(t, h.Namespace("berlin"))
	require.Equal(t, "rome", h.Namespace("rome"))
}

func TestByNamespaceNobodyNeedsToBeToldWhoseAnApplicationIs(t *testing.T) {
	t.Parallel()
	h, _ := aHub(t)
	h.connects("berlin", facets.Managed)
	var r revision
	h.becomes(t, &r, "berlin/shop", "in-cluster")
	agent, onSpoke := h.Assigned("berlin_shop")
	require.Empty(t, agent+onSpoke)
	require.Equal(t, "berlin", h.Namespace("berlin"))
}

// told notes of whom components have to know anew.
type told struct {
	deaf

	heard *[]string
}

func (n told) Reassigned(instance string, agents ...string) {
	*n.heard = append(*n.heard, instance+": "+strings.Join(agents, " "))
}

func (n told) Rehoused(agent string) { *n.heard = append(*n.heard, agent) }

func TestComponentsHearOfAnApplicationThatMoves(t *testing.T) {
	t.Parallel()
	h, _ := aHubThatMaps(t, byDestination())
	var heard []string
	h.listener = told{heard: &heard}
	hears := func(want ...string) {
		t.Helper()
		require.Equal(t, want, heard)
		heard = nil
	}
	var r revision
	h.becomes(t, &r, "team-a/shop", "berlin")
	hears("team-a_shop: berlin")
	h.becomes(t, &r, "team-a/shop", "berlin", func(m *metav1.ObjectMeta) { m.Labels = map[string]string{"team": "blue"} })
	hears()
	h.becomes(t, &r, "team-a/shop", "paris")
	hears("team-a_shop: berlin paris")
	app := h.becomes(t, &r, "team-a/shop", "in-cluster")
	hears("team-a_shop: paris")
	h.cluster.Store.Erased(app)
	hears()
	h.connects("berlin", facets.Managed)
	hears()
	h.connects("rome", facets.Autonomous)
	hears("rome")
	h.becomes(t, &r, "rome/shop", "rome", shown)
	hears()
}
