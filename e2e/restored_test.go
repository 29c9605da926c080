package e2e_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/pki"
)

// A hub that comes out of a backup has all that it had, by other UIDs, and is known by another UID itself. The spoke's copies
// become the new ones' as they are: nothing is deleted, and so nothing is held back.
func TestAHubIsRestoredFromABackup(t *testing.T) {
	t.Parallel()
	home := unique("restored-hub") // each principal is known by what is in its own namespace
	principal := newPrincipal(t, lab.PrincipalOptions{
		Args:         []string{"--namespace=" + home},
		Certificates: certificates(shared.CA, serverPair(t, shared.CA, pki.Validity{})),
	})
	s := newSite(t, "outliving", lab.AgentOptions{Principal: principal}).connected(t)
	var originals, copies []side
	for n := range 12 { // enough to be held back if they were deleted
		app := s.newTwin(fmt.Sprint("app-", n)).create(t)
		originals, copies = append(originals, app.hub), append(copies, app.spoke)
	}
	originals = append(originals,
		project(shared.Hub, home, "team").declare(t, "AppProject", projectFor(s.name)),
		core(shared.Hub, "secrets", home, "repository").declare(t, "Secret", repository("team"), label(secretType, "repository")),
		core(shared.Hub, "configmaps", home, "argocd-gpg-keys-cm").declare(t, "ConfigMap", map[string]any{"data": map[string]any{"key": "a key"}}))
	copies = append(copies, project(s.spoke, s.name, "team"), core(s.spoke, "secrets", s.name, "repository"),
		core(s.spoke, "configmaps", s.name, "argocd-gpg-keys-cm"))
	var before []*unstructured.Unstructured
	for i, original := range originals {
		before = append(before, copies[i].becomes(t, annotated(sourceUID, string(original.get(t).GetUID()))))
	}

	stopped(t, principal.Stop)
	restore(t, originals)
	identity := core(shared.Hub, "configmaps", home, "argocd-agent-principal-identity")
	old := identity.get(t)
	identity.delete(t)
	start(t, principal.Start)
	identity.becomes(t, anew(old))
	for i, original := range originals {
		copies[i].becomes(t, annotated(sourceUID, string(original.get(t).GetUID())))
		copies[i].remains(t, before[i])
	}
	for _, path := range []string{principal.LogPath(), s.agent.LogPath()} {
		require.NotContains(t, logSince(t, path, 0), "held back")
	}
}

// restore makes each of the objects another one of the same content.
func restore(t *testing.T, originals []side) {
	t.Helper()
	for _, original := range originals {
		saved := original.get(t)
		original.delete(t)
		original.vanishes(t)
		saved.SetUID("")
		saved.SetResourceVersion("")
		saved.SetManagedFields(nil)
		require.NoError(t, original.cluster.Apply(t.Context(), saved))
	}
}
