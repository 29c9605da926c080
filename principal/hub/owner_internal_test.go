package hub

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/argocd"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/facets"
)

// An application is an agent's by its namespace or destination, and only as far as it is shared.
func TestOwnerOfApplications(t *testing.T) {
	t.Parallel()
	h, _ := newTestHubWithMapping(t, byDestination())
	h.connect("paris", facets.Managed)
	h.connect("rome", facets.Autonomous)
	var r revision
	mirror := func(m *metav1.ObjectMeta) {
		m.Annotations = map[string]string{argocd.AnnotationAgent: "rome", argocd.AnnotationSourceUID: "on-spoke"}
	}
	for _, c := range []struct {
		place, destination string
		change             func(*metav1.ObjectMeta)
		agent              string
		shared             bool
	}{
		{"team-a/shop", "paris", func(m *metav1.ObjectMeta) { m.UID = "on-hub" }, "paris", true},
		{"team-a/away", "berlin", func(*metav1.ObjectMeta) {}, "berlin", false},
		{"team-a/own", "in-cluster", func(*metav1.ObjectMeta) {}, "", false},
		{"kitchen/shop", "paris", func(*metav1.ObjectMeta) {}, "", false},
		{"team-a/ignored", "paris", ignored, "", false},
		{"rome/shop", "rome", mirror, "rome", true},
		{"team-a/mirror", "paris", mirror, "rome", false},
	} {
		agent, shared := (*owners)(h).OwnerOf(h.writeApplication(t, &r, c.place, c.destination, c.change))
		require.Equal(t, c.agent, agent, c.place)
		require.Equal(t, c.shared, shared, c.place)
	}
}
