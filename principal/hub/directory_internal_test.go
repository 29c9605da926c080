package hub

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/argocd"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/converge"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/facets"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/mapping"
)

// byDestination maps so, and allows the namespaces of teams.
func byDestination() mapping.Mapping {
	return mapping.ByDestination{Hub: "argocd", Allowed: func(namespace string) bool { return strings.HasPrefix(namespace, "team-") }}
}

// writeApplication writes an application, at NAMESPACE/NAME, to the hub's store.
func (h *Hub) writeApplication(t *testing.T, r *revision, place, destination string, changes ...func(*metav1.ObjectMeta)) *argocd.App {
	t.Helper()
	meta := r.of("", nil)
	meta.Namespace, meta.Name, _ = strings.Cut(place, "/")
	for _, change := range changes {
		change(&meta)
	}
	app, err := h.cluster.Store.RecordWrite(&argocd.Application{
		ObjectMeta: meta, Spec: fmt.Appendf(nil, `{"destination":{"name":%q}}`, destination),
	})
	require.NoError(t, err)
	return app
}

func ignored(m *metav1.ObjectMeta) { m.Labels = map[string]string{argocd.LabelIgnore: "true"} }

func shown(m *metav1.ObjectMeta) {
	m.Annotations = map[string]string{argocd.AnnotationSourceUID: "on-spoke"}
}

// directory is what the hub recorded: agents' namespaces, by agent, and agents with their instances, by instance.
type directory map[string]string

func (d directory) SetNamespace(agent, namespace string) { d["agent "+agent] = namespace }
func (d directory) Assign(instance, agent, spokeInstance string) {
	d[instance] = agent + " " + spokeInstance
}
func (d directory) Unassign(instance string) { delete(d, instance) }
func (d directory) SetComplete()             {}

func TestDirectoryByDestination(t *testing.T) {
	t.Parallel()
	h, _ := newTestHubWithMapping(t, byDestination())
	h.connect("rome", facets.Autonomous)
	var r revision
	h.writeApplication(t, &r, "argocd/shop", "berlin")
	h.writeApplication(t, &r, "team-a/shop", "berlin")
	h.writeApplication(t, &r, "kitchen/shop", "berlin") // a namespace that is not allowed
	h.writeApplication(t, &r, "team-a/own", "in-cluster")
	h.writeApplication(t, &r, "team-a/ignored", "berlin", ignored)
	h.writeApplication(t, &r, "team-a/mirror", "berlin", func(m *metav1.ObjectMeta) { // only shows another agent's
		m.Annotations = map[string]string{argocd.AnnotationAgent: "rome"}
	})
	require.Equal(t, directory{"agent rome": "rome", "shop": "berlin shop", "team-a_shop": "berlin team-a_shop"}, h.options.Directory)
}

func TestDirectoryByNamespaceNeedsNoAssignments(t *testing.T) {
	t.Parallel()
	h, _ := newTestHub(t)
	h.connect("berlin", facets.Managed)
	var r revision
	h.writeApplication(t, &r, "berlin/shop", "in-cluster")
	require.Equal(t, directory{"agent berlin": "berlin"}, h.options.Directory)
}

func TestDirectoryFollowsAnApplication(t *testing.T) {
	t.Parallel()
	h, _ := newTestHubWithMapping(t, byDestination())
	var r revision
	var app *argocd.App
	for _, step := range []struct {
		destination string
		change      func(*metav1.ObjectMeta)
		want        directory
	}{
		{"berlin", nil, directory{"team-a_shop": "berlin team-a_shop"}},
		{"paris", nil, directory{"team-a_shop": "paris team-a_shop"}},
		{"paris", ignored, directory{}},
		{"in-cluster", nil, directory{}},
		{"paris", nil, directory{"team-a_shop": "paris team-a_shop"}},
	} {
		change := step.change
		if change == nil {
			change = func(*metav1.ObjectMeta) {}
		}
		app = h.writeApplication(t, &r, "team-a/shop", step.destination, change)
		require.Equal(t, step.want, h.options.Directory)
	}
	h.cluster.Store.RecordDelete(app.Name, app)
	require.Equal(t, directory{}, h.options.Directory)
}

// Of an agent that has gone for good nothing stays, and its applications are nobody's until it connects again.
func TestForgottenAgentLeavesNothing(t *testing.T) {
	t.Parallel()
	h, _ := newTestHubWithMapping(t, byDestination())
	listener := recordingListener{resynced: make(map[string][]converge.Facet)}
	h.Subscribe(listener)
	h.connect("rome", facets.Autonomous)
	require.Equal(t, directory{"agent rome": "rome"}, h.options.Directory)
	h.Forget("rome")
	require.Equal(t, directory{"agent rome": ""}, h.options.Directory)
	_, shared := h.share("rome")
	require.False(t, shared)
	h.SetCluster("rome", "https://rome")
	require.Empty(t, listener.resynced)
	h.connect("rome", facets.Managed)
	h.SetCluster("rome", "https://rome")
	require.Equal(t, []converge.Facet{facets.AppProject, facets.Repository, facets.RepoCreds}, listener.resynced["rome"])
}

// An autonomous agent has its namespace whichever principal it is connected to, also after it has left this one for another.
func TestAgentOfAnotherPrincipalHasTheNamespaceOfItsMode(t *testing.T) {
	t.Parallel()
	h, _ := newTestHubWithMapping(t, byDestination())
	mode := facets.Autonomous
	h.options.Session = func(string) (string, bool) { return string(mode), mode != "" }
	h.ConnectionChanged("rome")
	require.Equal(t, directory{"agent rome": "rome"}, h.options.Directory)
	h.connect("rome", facets.Autonomous)
	h.Forget("rome")
	require.Equal(t, directory{"agent rome": "rome"}, h.options.Directory)
	mode = ""
	h.ConnectionChanged("rome")
	require.Equal(t, directory{"agent rome": "rome"}, h.options.Directory, "as of any agent that is away")
	mode = facets.Managed
	h.ConnectionChanged("rome")
	require.Equal(t, directory{"agent rome": ""}, h.options.Directory)
}
