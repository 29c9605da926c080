package e2e_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/argocd"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/cluster"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/toolset"
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
	word := s.brakes(t, principal, apps[:11], 20)
	held := fmt.Sprintf("argocd_principal_sync_held_deletions{agent=%q,facet=\"application\"}", s.name)
	_, metrics := get(t, principal.MetricsURL)
	require.Contains(t, metrics, held+" 11")
	requireEvent(t, "11 of 20 objects of "+s.name+".application would be deleted at once")

	// All else goes on, and is no way around.
	first := s.newTwin("new").create(t)
	first.arrives(t)
	apps[11].hub.edit(t, label("team", "blue"))
	apps[11].spoke.becomes(t, labelled("team", "blue"))
	s.agent.Principal.Reset()
	second := s.newTwin("newer").create(t)
	second.arrives(t)
	s.has(t, 22)

	t.Cleanup(func() { core(shared.Hub, "configmaps", lab.Namespace, "argocd-agent-brake").delete(t) })
	mark := principal.Mark()
	inShell(t, word)
	for _, app := range apps[:11] {
		app.spoke.vanishes(t)
	}
	saysNow(t, principal, mark, "A person's word was given", "No deletions are held back any more")
	s.has(t, 11)
	_, metrics = get(t, principal.MetricsURL)
	require.NotContains(t, metrics, held)

	// The next time the ConfigMap is there already.
	word = s.brakes(t, principal, append(apps[11:], first, second), 11)
	inShell(t, word)
	for _, app := range apps[11:] {
		app.spoke.vanishes(t)
	}
	saysNow(t, principal, mark, "A person's word was given")
	s.has(t, 0)
}

// brakes has applications deleted while the principal is away, which then holds the deletions back, and returns what it says
// to type if they are meant.
func (s *site) brakes(t *testing.T, principal *lab.Principal, apps []*twin, of int) (command string) {
	t.Helper()
	stopped(t, principal.Stop)
	for _, app := range apps {
		app.hub.delete(t)
		app.hub.vanishes(t)
	}
	mark := principal.Mark()
	start(t, principal.Start)
	saysNow(t, principal, mark, fmt.Sprintf("deletions=%d held=%d", len(apps), of))
	says(t, principal, "Deletions are held back: they are too many to be believed")
	lines := regexp.MustCompile(` by="([^"]+)"`).FindAllStringSubmatch(principal.Tail(50), -1)
	require.NotEmpty(t, lines)
	command = lines[len(lines)-1][1]
	require.Contains(t, command, "--from-literal="+s.name+".application=")
	return command
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

// inShell does what somebody on the hub would type.
func inShell(t *testing.T, command string) {
	t.Helper()
	shell := exec.CommandContext(t.Context(), "sh", "-c", command)
	shell.Env = append(os.Environ(), "KUBECONFIG="+shared.Hub.Kubeconfig,
		"PATH="+filepath.Dir(shared.Tools.Program(toolset.Kubectl))+":"+os.Getenv("PATH"))
	output, err := shell.CombinedOutput()
	require.NoError(t, err, "%s\n%s", command, output)
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
