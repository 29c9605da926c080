package e2e_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/argocd"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/link"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/pki"
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
func newHubOfItsOwn(t *testing.T, name string, applications int, args ...string) *hubOfItsOwn {
	t.Helper()
	home := unique(name)
	h := &hubOfItsOwn{identity: core(shared.Hub, "configmaps", home, "argocd-agent-principal-identity")}
	h.principal = newPrincipal(t, lab.PrincipalOptions{
		Args:         append([]string{"--namespace=" + home}, args...),
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
func TestHubRestoredFromBackup(t *testing.T) {
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
	require.Equal(t, 1, strings.Count(logSince(t, h.site.agent.LogPath(), 0), "Found replica objects of another hub"))
}

// A principal that is up before its hub has been restored would have everything deleted, if its deletion guard is off.
func TestPartlyRestoredHubDeletesNothing(t *testing.T) {
	t.Parallel()
	h := newHubOfItsOwn(t, "empty-hub", 3, "--deletion-guard-share=100")
	var saved []*unstructured.Unstructured
	mark := h.site.agent.Mark()
	h.rebuilt(t, func(t *testing.T, originals []side) { t.Helper(); saved = save(t, originals) })
	for _, facet := range []string{"application", "appproject", "repository", "gpg-keys"} {
		saysNow(t, h.site.agent, mark, `msg="Refused to delete replica object" component=sync facet=`+facet+" ")
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

// Revisions go back where etcd is restored from a backup, and a watch that goes on from a later one is accepted and brings nothing.
// Nobody has to restart the programs, also if all that they see of it is a cut: a starting API server would turn them away by
// itself, one behind a load balancer is not seen to start.
func TestEtcdRestoredFromBackup(t *testing.T) {
	if testing.Short() {
		t.Skip("a lab of its own: make e2e runs it")
	}
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	own, err := lab.Start(ctx, lab.Options{Spokes: []string{"berlin"}, Agents: true})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, own.Close()) })
	app := &twin{
		hub:   side{own.Hub, argocd.Named("berlin", "restored")},
		spoke: side{own.Spoke("berlin"), argocd.Named(lab.Namespace, "restored")},
	}
	require.NoError(t, own.Hub.Apply(ctx, argocd.New(argocd.Application{
		Namespace: "berlin", Name: "restored", RepoURL: "git://127.0.0.1/none", Path: "none", Destination: "berlin",
	})))
	app.hub.edit(t, label("number", "first"))
	app.spoke.becomes(t, labelled("number", "first"))

	app.goesBack(t, own.Spoke("berlin"), own.Agent("berlin").APIServer)
	app.spoke.becomes(t, labelled("number", own.Spoke("berlin").Name)) // which is what the hub has
	app.hub.edit(t, label("number", "second"))
	app.spoke.becomes(t, labelled("number", "second"))

	app.goesBack(t, own.Hub, own.Principal.APIServer)
	app.spoke.becomes(t, labelled("number", "second")) // which is what the hub has again
	app.hub.edit(t, label("number", "third"))
	app.spoke.becomes(t, labelled("number", "third"))
}

// goesBack restores a cluster to before a label was changed to its name. The program that follows it sees a cut by this link.
func (a *twin) goesBack(t *testing.T, c *lab.Cluster, seen *link.Link) {
	t.Helper()
	require.NoError(t, c.Backup(t.Context()))
	for n := range 400 { // far ahead of what is written after the restoration
		_, err := rewrite(t.Context(), c, namespaceOf(c, "default").selection, label("number", fmt.Sprint(n)))
		require.NoError(t, err)
	}
	last := revision(namespaceOf(c, "default").get(t))
	a.hub.edit(t, label("number", c.Name))
	a.spoke.becomes(t, labelled("number", c.Name))
	seen.Refuse()
	require.NoError(t, c.Restore(t.Context()))
	namespaceOf(c, "default").edit(t, label("number", "restored"))
	require.Less(t, revision(namespaceOf(c, "default").get(t)), last, "%s did not go back", c.Name)
	seen.Restore()
}
