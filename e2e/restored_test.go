package e2e_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/pki"
)

// hubOfItsOwn is a principal with what is in its own namespace, by which it is known, and what a site has of it.
type hubOfItsOwn struct {
	principal         *lab.Principal
	identity          side
	site              *site
	originals, copies []side
	before            []*unstructured.Unstructured // the copies
}

// newHubOfItsOwn returns one with so many Applications, a project, a repository and GPG keys.
func newHubOfItsOwn(t *testing.T, name string, applications int) *hubOfItsOwn {
	t.Helper()
	home := unique(name)
	h := &hubOfItsOwn{identity: core(shared.Hub, "configmaps", home, "argocd-agent-principal-identity")}
	h.principal = newPrincipal(t, lab.PrincipalOptions{
		Args:         []string{"--namespace=" + home},
		Certificates: certificates(shared.CA, serverPair(t, shared.CA, pki.Validity{})),
	})
	s := newSite(t, "outliving", lab.AgentOptions{Principal: h.principal}).connected(t)
	h.site = s
	for n := range applications {
		app := s.newTwin(fmt.Sprint("app-", n)).create(t)
		h.originals, h.copies = append(h.originals, app.hub), append(h.copies, app.spoke)
	}
	h.originals = append(h.originals,
		project(shared.Hub, home, "team").declare(t, "AppProject", projectFor(s.name)),
		core(shared.Hub, "secrets", home, "repository").declare(t, "Secret", repository("team"), label(secretType, "repository")),
		core(shared.Hub, "configmaps", home, "argocd-gpg-keys-cm").declare(t, "ConfigMap", map[string]any{"data": map[string]any{"key": "a key"}}))
	h.copies = append(h.copies, project(s.spoke, s.name, "team"), core(s.spoke, "secrets", s.name, "repository"),
		core(s.spoke, "configmaps", s.name, "argocd-gpg-keys-cm"))
	for i, original := range h.originals {
		h.before = append(h.before, h.copies[i].becomes(t, annotated(sourceUID, string(original.get(t).GetUID()))))
	}
	return h
}

// rebuilt has the principal come back as that of another hub, which has what the function makes of the originals.
func (h *hubOfItsOwn) rebuilt(t *testing.T, from func(t *testing.T, originals []side)) {
	t.Helper()
	stopped(t, h.principal.Stop)
	from(t, h.originals)
	old := h.identity.get(t)
	h.identity.delete(t)
	start(t, h.principal.Start)
	h.identity.becomes(t, anew(old))
}

// A hub that comes out of a backup has all that it had, by other UIDs, and is known by another UID itself. The spoke's copies
// become the new ones' as they are: nothing is deleted, and so nothing is held back.
func TestAHubIsRestoredFromABackup(t *testing.T) {
	t.Parallel()
	h := newHubOfItsOwn(t, "restored-hub", 12) // enough to be held back if they were deleted
	h.rebuilt(t, func(t *testing.T, originals []side) {
		t.Helper()
		for _, saved := range save(t, originals) {
			require.NoError(t, shared.Hub.Apply(t.Context(), saved))
		}
	})
	h.requireTaken(t)
	for _, path := range []string{h.principal.LogPath(), h.site.agent.LogPath()} {
		require.NotContains(t, logSince(t, path, 0), "held back")
	}
}

// A principal that is up before its hub has been restored would have few things deleted at once, which no brake holds back.
func TestAHubThatIsNotRestoredYetTakesNothing(t *testing.T) {
	t.Parallel()
	h := newHubOfItsOwn(t, "empty-hub", 3)
	var saved []*unstructured.Unstructured
	mark := h.site.agent.Mark()
	h.rebuilt(t, func(t *testing.T, originals []side) { t.Helper(); saved = save(t, originals) })
	for _, facet := range []string{"application", "appproject", "repository", "gpg-keys"} {
		saysNow(t, h.site.agent, mark, `msg="Left in place what the other side wants gone" component=sync facet=`+facet+" ")
	}
	for i, replica := range h.copies {
		replica.remains(t, h.before[i])
	}
	for _, object := range saved {
		require.NoError(t, shared.Hub.Apply(t.Context(), object))
	}
	h.requireTaken(t)
}

// requireTaken waits until the copies are those of the originals that are there now, and fails unless they are the same objects.
func (h *hubOfItsOwn) requireTaken(t *testing.T) {
	t.Helper()
	for i, original := range h.originals {
		h.copies[i].becomes(t, annotated(sourceUID, string(original.get(t).GetUID())))
		h.copies[i].remains(t, h.before[i])
	}
}

// save deletes objects, and returns what creates others of the same content.
func save(t *testing.T, originals []side) []*unstructured.Unstructured {
	t.Helper()
	var all []*unstructured.Unstructured
	for _, original := range originals {
		saved := original.get(t)
		original.delete(t)
		original.vanishes(t)
		saved.SetUID("")
		saved.SetResourceVersion("")
		saved.SetManagedFields(nil)
		all = append(all, saved)
	}
	return all
}
