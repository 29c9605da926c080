package e2e_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/argocd"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/cluster"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/process"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/toolset"
)

// Most of an agent's Applications are gone when the principal returns: that is more often an accident than a wish.
func TestDeletionGuardPausesMassDeletion(t *testing.T) {
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
	hub := origin{shared.Hub, lab.Namespace, principal.Process}
	word := hub.brakes(t, s.name+".application", originals(apps[:11]))
	says(t, principal, "Resync would delete 11 of 20 objects; deletions paused")
	held := fmt.Sprintf("argocd_principal_sync_guarded_deletions{agent=%q,facet=\"application\"}", s.name)
	_, metrics := get(t, principal.MetricsURL)
	require.Contains(t, metrics, held+" 11")
	requireEvent(t, shared.Hub, lab.Namespace, "DeletionsPaused", "Resync would delete 11 of 20 objects of "+s.name+".application; deletions paused")

	// All else goes on, and is no way around.
	first := s.newTwin("new").create(t)
	first.arrives(t)
	apps[11].hub.edit(t, label("team", "blue"))
	apps[11].spoke.becomes(t, labelled("team", "blue"))
	s.agent.Principal.Reset()
	second := s.newTwin("newer").create(t)
	second.arrives(t)
	s.has(t, 22)

	mark := principal.Mark()
	hub.inShell(t, word)
	t.Cleanup(func() { hub.forget(t, s.name+".application") })
	for _, app := range apps[:11] {
		app.spoke.vanishes(t)
	}
	saysNow(t, principal, mark, "Deletions confirmed by token", "No deletions are paused any more")
	s.has(t, 11)
	_, metrics = get(t, principal.MetricsURL)
	require.NotContains(t, metrics, held)

	// The next time the ConfigMap is there already.
	word = hub.brakes(t, s.name+".application", originals(append(apps[11:], first, second)))
	mark = principal.Mark()
	hub.inShell(t, word)
	for _, app := range apps[11:] {
		app.spoke.vanishes(t)
	}
	saysNow(t, principal, mark, "Deletions confirmed by token")
	s.has(t, 0)
}

// origin is the side on which something is deleted, and the program there, which says so to the other.
type origin struct {
	cluster   *lab.Cluster
	namespace string // of the program
	program   *process.Process
}

func (p origin) brake() side {
	return core(p.cluster, "configmaps", p.namespace, "argocd-agent-deletion-guard")
}

// brakes has objects deleted while the program is away, which then holds the deletions back under this name, and returns what
// it says to type if they are meant.
func (p origin) brakes(t *testing.T, name string, objects []side) (command string) {
	t.Helper()
	stopped(t, p.program.Stop)
	for _, object := range objects {
		object.delete(t)
		object.vanishes(t)
	}
	mark := p.program.Mark()
	start(t, p.program.Start)
	saysNow(t, p.program, mark, fmt.Sprintf("Resync would delete %d of ", len(objects)))
	says(t, p.program, "deletions paused. Run the command in")
	lines := regexp.MustCompile(` confirm_with="([^"]+)"`).FindAllStringSubmatch(p.program.Tail(50), -1)
	require.NotEmpty(t, lines)
	command = lines[len(lines)-1][1]
	require.Contains(t, command, "--from-literal="+name+"=")
	return command
}

// originals are the hub's of some applications.
func originals(apps []*twin) []side {
	var sides []side
	for _, app := range apps {
		sides = append(sides, app.hub)
	}
	return sides
}

// has fails unless there are so many Applications on the site's spoke.
func (s *site) has(t *testing.T, count int) {
	t.Helper()
	objects, err := s.spoke.List(t.Context(), argocd.All(s.name))
	require.NoError(t, err)
	require.Len(t, objects, count)
}

// requireEvent fails unless people were told of something by an Event.
func requireEvent(t *testing.T, c *lab.Cluster, namespace, reason, message string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	_, err := c.WaitAll(ctx, events(namespace), func(objects cluster.Objects) bool {
		for _, event := range objects {
			if strings.Contains(text(event, "message"), message) && text(event, "reason") == reason {
				return true
			}
		}
		return false
	})
	require.NoError(t, err)
}

// inShell runs a command there as somebody would who copied it from the log.
func (p origin) inShell(t *testing.T, command string) {
	t.Helper()
	shell := exec.CommandContext(t.Context(), "sh", "-c", command)
	shell.Env = append(os.Environ(), "KUBECONFIG="+p.cluster.Kubeconfig,
		"PATH="+filepath.Dir(shared.Tools.Program(toolset.Kubectl))+":"+os.Getenv("PATH"))
	output, err := shell.CombinedOutput()
	require.NoError(t, err, "%s\n%s", command, output)
}

// What comes back on the hub was never in danger.
func TestDeletionGuardClearsWhenObjectsReturn(t *testing.T) {
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
	says(t, principal, "Resync would delete 12 of 12 objects; deletions paused")
	for _, app := range apps {
		app.create(t, label("restored", "yes"))
	}
	for _, app := range apps {
		app.arrives(t, labelled("restored", "yes"))
	}
	says(t, principal, "No deletions are paused any more")
}

// The brake is not for applications alone: whatever one side tells the other to delete, it holds back, and lets go.
func TestDeletionGuardCoversEveryFacet(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		mode, facet string
		// declare makes something of the site's and returns it and its copy. All that it makes begin alike.
		declare func(t *testing.T, s *site, name string) (original, replica side)
	}{
		"projects":             {"managed", "appproject", declareProject},
		"repositories":         {"managed", "repository", declareCredentials("repository")},
		"credential templates": {"managed", "repo-creds", declareCredentials("repo-creds")},
		"autonomous projects":  {"autonomous", "appproject", declareOwnProject},
		"autonomous applications": {"autonomous", "application", func(t *testing.T, s *site, name string) (side, side) {
			app := s.newOwn(name).createOnSpoke(t)
			return app.spoke, app.hub
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			principal := newPrincipal(t, lab.PrincipalOptions{})
			s := newSite(t, "braked", lab.AgentOptions{Principal: principal, Mode: c.mode}).connected(t)
			from, brake := origin{shared.Hub, lab.Namespace, principal.Process}, s.name+"."+c.facet
			if c.mode == "autonomous" {
				from, brake = origin{s.spoke, s.name, s.agent.Process}, c.facet
			}
			var originals, replicas []side
			for n := range 12 {
				original, replica := c.declare(t, s, fmt.Sprintf("%s-%02d", s.name, n))
				originals, replicas = append(originals, original), append(replicas, replica)
			}
			for _, replica := range replicas {
				replica.becomes(t)
			}
			command := from.brakes(t, brake, originals)
			requireEvent(t, from.cluster, from.namespace, "DeletionsPaused", "objects of "+brake+"; deletions paused")
			// What comes after goes on, so what is still there was held back.
			_, after := c.declare(t, s, s.name+"-after")
			after.becomes(t)
			for _, replica := range replicas {
				replica.becomes(t)
			}
			from.inShell(t, command)
			t.Cleanup(func() { from.forget(t, brake) })
			for _, replica := range replicas {
				replica.vanishes(t)
			}
			after.becomes(t)
		})
	}
}

// forget takes a word back that was given, and leaves those of others.
func (p origin) forget(t *testing.T, brake string) {
	t.Helper()
	p.brake().edit(t, func(object *unstructured.Unstructured) { unstructured.RemoveNestedField(object.Object, "data", brake) })
}

func declareProject(t *testing.T, s *site, name string) (original, replica side) {
	t.Helper()
	return project(shared.Hub, lab.Namespace, name).declare(t, "AppProject", projectFor(s.name)), project(s.spoke, s.name, name)
}

// declareCredentials declares Secrets for Argo CD, of a project that is made for them.
func declareCredentials(use string) func(t *testing.T, s *site, name string) (original, replica side) {
	return func(t *testing.T, s *site, name string) (original, replica side) {
		t.Helper()
		team := project(shared.Hub, lab.Namespace, s.name)
		if there, err := shared.Hub.Get(t.Context(), team.selection); err == nil && there == nil {
			team.declare(t, "AppProject", projectFor(s.name))
		}
		secret := core(shared.Hub, "secrets", lab.Namespace, name)
		return secret.declare(t, "Secret", repository(s.name), label(secretType, use)), core(s.spoke, "secrets", s.name, name)
	}
}

func declareOwnProject(t *testing.T, s *site, name string) (original, replica side) {
	t.Helper()
	return project(s.spoke, s.name, name).declare(t, "AppProject", projectFor(s.name)), project(shared.Hub, lab.Namespace, s.name+"-"+name)
}
