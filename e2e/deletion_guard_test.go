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

// Most of an agent's Applications are gone when the principal returns: that is probably an accident.
func TestDeletionGuardPausesMassDeletion(t *testing.T) {
	t.Parallel()
	principal := newPrincipal(t, lab.PrincipalOptions{})
	s := newSite(t, "guarded", lab.AgentOptions{Principal: principal}).connected(t)
	var apps []*twin
	for n := range 20 {
		apps = append(apps, s.newTwin(fmt.Sprintf("app-%02d", n)).create(t))
	}
	for _, app := range apps {
		app.arrives(t)
	}
	hub := guardedSource{shared.Hub, lab.Namespace, principal.Process}
	command := hub.deleteWhileStopped(t, s.name+".application", hubObjects(apps[:11]))
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
	hub.inShell(t, command)
	t.Cleanup(func() { hub.removeToken(t, s.name+".application") })
	for _, app := range apps[:11] {
		app.spoke.vanishes(t)
	}
	saysNow(t, principal, mark, "Deletions confirmed by token", "No deletions are paused any more")
	s.has(t, 11)
	_, metrics = get(t, principal.MetricsURL)
	require.NotContains(t, metrics, held)

	// The next time the ConfigMap is there already.
	command = hub.deleteWhileStopped(t, s.name+".application", hubObjects(append(apps[11:], first, second)))
	mark = principal.Mark()
	hub.inShell(t, command)
	for _, app := range apps[11:] {
		app.spoke.vanishes(t)
	}
	saysNow(t, principal, mark, "Deletions confirmed by token")
	s.has(t, 0)
}

// guardedSource is the cluster with the source objects, and the program there, whose deletion guard acts.
type guardedSource struct {
	cluster   *lab.Cluster
	namespace string // of the program
	program   *process.Process
}

func (p guardedSource) guardConfigMap() side {
	return core(p.cluster, "configmaps", p.namespace, "argocd-agent-deletion-guard")
}

// deleteWhileStopped deletes objects while the program is stopped. It waits until the guard pauses the deletions under this
// name, and returns the command that confirms them.
func (p guardedSource) deleteWhileStopped(t *testing.T, name string, objects []side) (command string) {
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
	command = p.command(t)
	require.Contains(t, command, "--from-literal="+name+"=")
	return command
}

// command returns the last command that the program says to confirm deletions with.
func (p guardedSource) command(t *testing.T) string {
	t.Helper()
	lines := regexp.MustCompile(` confirm_with="([^"]+)"`).FindAllStringSubmatch(p.program.Tail(50), -1)
	require.NotEmpty(t, lines)
	return lines[len(lines)-1][1]
}

// hubObjects are the hub's objects of some applications.
func hubObjects(apps []*twin) []side {
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

// requireEvent fails unless there is such an Event.
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

// inShell runs a command there, as if it was copied from the log.
func (p guardedSource) inShell(t *testing.T, command string) {
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

// The guard pauses deletions of every facet, and confirmation resumes them.
func TestDeletionGuardCoversEveryFacet(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		mode, facet string
		// declare makes something of the site's and returns it and its copy. All that it makes begin alike.
		declare func(t *testing.T, s *site, name string) (source, replica side)
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
			s := newSite(t, "guarded", lab.AgentOptions{Principal: principal, Mode: c.mode}).connected(t)
			from, key := guardedSource{shared.Hub, lab.Namespace, principal.Process}, s.name+"."+c.facet
			if c.mode == "autonomous" {
				from, key = guardedSource{s.spoke, s.name, s.agent.Process}, c.facet
			}
			var hubObjects, replicas []side
			for n := range 12 {
				source, replica := c.declare(t, s, fmt.Sprintf("%s-%02d", s.name, n))
				hubObjects, replicas = append(hubObjects, source), append(replicas, replica)
			}
			for _, replica := range replicas {
				replica.becomes(t)
			}
			command := from.deleteWhileStopped(t, key, hubObjects)
			requireEvent(t, from.cluster, from.namespace, "DeletionsPaused", "objects of "+key+"; deletions paused")
			// What comes after goes on, so what is still there was held back.
			_, after := c.declare(t, s, s.name+"-after")
			after.becomes(t)
			for _, replica := range replicas {
				replica.becomes(t)
			}
			from.inShell(t, command)
			t.Cleanup(func() { from.removeToken(t, key) })
			for _, replica := range replicas {
				replica.vanishes(t)
			}
			after.becomes(t)
		})
	}
}

// removeToken removes a token, and leaves those of others.
func (p guardedSource) removeToken(t *testing.T, key string) {
	t.Helper()
	p.guardConfigMap().edit(t, func(object *unstructured.Unstructured) { unstructured.RemoveNestedField(object.Object, "data", key) })
}

func declareProject(t *testing.T, s *site, name string) (source, replica side) {
	t.Helper()
	return project(shared.Hub, lab.Namespace, name).declare(t, "AppProject", projectFor(s.name)), project(s.spoke, s.name, name)
}

// declareCredentials declares Secrets for Argo CD, of a project that is made for them.
func declareCredentials(use string) func(t *testing.T, s *site, name string) (source, replica side) {
	return func(t *testing.T, s *site, name string) (source, replica side) {
		t.Helper()
		team := project(shared.Hub, lab.Namespace, s.name)
		if there, err := shared.Hub.Get(t.Context(), team.selection); err == nil && there == nil {
			team.declare(t, "AppProject", projectFor(s.name))
		}
		secret := core(shared.Hub, "secrets", lab.Namespace, name)
		return secret.declare(t, "Secret", repository(s.name), label(secretType, use)), core(s.spoke, "secrets", s.name, name)
	}
}

func declareOwnProject(t *testing.T, s *site, name string) (source, replica side) {
	t.Helper()
	return project(s.spoke, s.name, name).declare(t, "AppProject", projectFor(s.name)), project(shared.Hub, lab.Namespace, s.name+"-"+name)
}
