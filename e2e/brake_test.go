package e2e_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/argocd"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/cluster"
)

// Most of an agent's Applications are gone when the principal returns: that is more often an accident than a wish.
func TestDeletionsThatAreTooManyToBeBelievedWaitForAPerson(t *testing.T) {
	t.Parallel()
	principal := newPrincipal(t, lab.PrincipalOptions{})
	s := newSite(t, "braked", lab.AgentOptions{Principal: principal}).connected(t)
	var apps []*twin
	for n := range 20 {
		apps = append(apps, s.newTwin(fmt.Sprintf("app-%02d", n)).create(t))
	}
	for _, app := range apps {
		app.arrives(t)
	}
	stopped(t, principal.Stop)
	for _, app := range apps[:11] {
		app.hub.delete(t)
		app.hub.vanishes(t)
	}
	start(t, principal.Start)
	says(t, principal, "Deletions are held back: they are too many to be believed", "deletions=11 held=20",
		"kubectl -n argocd create configmap argocd-agent-brake --from-literal="+s.name+".application=")
	held := fmt.Sprintf("argocd_principal_sync_held_deletions{agent=%q,facet=\"application\"}", s.name)
	_, metrics := get(t, principal.MetricsURL)
	require.Contains(t, metrics, held+" 11")
	requireEvent(t, "11 of 20 objects of "+s.name+".application would be deleted at once")

	// All else goes on, and is no way around.
	s.newTwin("new").create(t).arrives(t)
	apps[11].hub.edit(t, label("team", "blue"))
	apps[11].spoke.becomes(t, labelled("team", "blue"))
	s.agent.Principal.Reset()
	s.newTwin("newer").create(t).arrives(t)
	s.has(t, 22)

	word := regexp.MustCompile(regexp.QuoteMeta(s.name) + `\.application=([0-9a-f]+)`).FindStringSubmatch(principal.Tail(50))
	require.Len(t, word, 2)
	gives(t, word[1])
	for _, app := range apps[:11] {
		app.spoke.vanishes(t)
	}
	says(t, principal, "A person's word was given", "No deletions are held back any more")
	s.has(t, 11)
	_, metrics = get(t, principal.MetricsURL)
	require.NotContains(t, metrics, held)
}

// has fails unless there are so many Applications on the site's spoke.
func (s *site) has(t *testing.T, count int) {
	t.Helper()
	objects, err := s.spoke.List(t.Context(), argocd.All(s.name))
	require.NoError(t, err)
	require.Len(t, objects, count)
}

// requireEvent fails unless somebody on the hub was told of something by an Event.
func requireEvent(t *testing.T, message string) {
	t.Helper()
	_, err := shared.Hub.WaitAll(t.Context(), events(), func(objects cluster.Objects) bool {
		for _, event := range objects {
			if strings.Contains(text(event, "message"), message) && text(event, "reason") == "DeletionsHeldBack" {
				return true
			}
		}
		return false
	})
	require.NoError(t, err)
}

// gives gives a word, as the log suggests.
func gives(t *testing.T, word string) {
	t.Helper()
	_, err := shared.Hub.Kubernetes.CoreV1().ConfigMaps(lab.Namespace).Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "argocd-agent-brake"}, Data: map[string]string{"whatever": word},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() { core(shared.Hub, "configmaps", lab.Namespace, "argocd-agent-brake").delete(t) })
}

// What comes back on the hub was never in danger.
func TestDeletionsThatAreTakenBackAreForgotten(t *testing.T) {
	t.Parallel()
	principal := newPrincipal(t, lab.PrincipalOptions{})
	s := newSite(t, "restored", lab.AgentOptions{Principal: principal, Args: []string{"--compare-interval=2s"}}).connected(t)
	var apps []*twin
	for n := range 12 {
		apps = append(apps, s.newTwin(fmt.Sprintf("app-%02d", n)).create(t))
	}
	for _, app := range apps {
		app.arrives(t)
	}
	stopped(t, principal.Stop)
	for _, app := range apps {
		app.hub.delete(t)
		app.hub.vanishes(t)
	}
	start(t, principal.Start)
	says(t, principal, "Deletions are held back", "deletions=12 held=12")
	for _, app := range apps {
		app.create(t, label("restored", "yes"))
	}
	for _, app := range apps {
		app.arrives(t, labelled("restored", "yes"))
	}
	says(t, principal, "No deletions are held back any more")
}
