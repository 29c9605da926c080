package e2e_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/argocd"
)

const inClusterServer = "https://kubernetes.default.svc"

// newOfProject makes an autonomous site with a project of its own, called "own", and an Application of that, which the hub
// shows. By then the hub's argocd-server knows the project.
func newOfProject(t *testing.T, name string, content map[string]any) (*site, *twin) {
	t.Helper()
	s := newSite(t, name, lab.AgentOptions{Mode: "autonomous"})
	project(s.spoke, s.name, "own").declare(t, "AppProject", map[string]any{"spec": content})
	project(shared.Hub, lab.Namespace, s.name+"-own").becomes(t)
	app := s.newOwn("guestbook").createOnSpoke(t, spec("own", "project"))
	app.shown(t)
	return s, app
}

// proposed is what the hub's argocd-server says to a new Application of a project.
func proposed(t *testing.T, s *site, project string, destination map[string]any) (int, string) {
	t.Helper()
	name := unique("proposed")
	t.Cleanup(func() { side{shared.Hub, argocd.Named(s.name, name)}.delete(t) })
	return request(t, http.MethodPost, shared.Hub.ArgoCD.URL+"/api/v1/applications", map[string]any{
		"metadata": map[string]any{"name": name, "namespace": s.name},
		"spec": map[string]any{
			"project": project, "destination": destination,
			"source": map[string]any{"repoURL": shared.Git.URL, "path": lab.ConfigPath, "targetRevision": "main"},
		},
	})
}

// A project of an agent's own permits the same on the hub as on the spoke, and nothing in other clusters. The first of them is
// the hub itself.
func TestTheHubPermitsWhatAnAutonomousAgentsProjectPermits(t *testing.T) {
	t.Parallel()
	allowed := func(namespace string) any { return map[string]any{"server": inClusterServer, "namespace": namespace} }
	denied := map[string]any{"server": "!" + inClusterServer, "namespace": "kube-system"}
	for name, destinations := range map[string][]any{
		"permitted-all":       {allowed("*"), allowed("!kube-system")},
		"permitted-but":       {allowed("*"), denied},
		"permitted-some":      {allowed("team"), denied},
		"permitted-elsewhere": {allowed("team"), map[string]any{"name": "elsewhere", "namespace": "*"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, _ := newOfProject(t, name, map[string]any{"sourceRepos": []any{"*"}, "destinations": destinations})
			for _, destination := range []map[string]any{
				{"server": inClusterServer, "namespace": "team"},
				{"server": inClusterServer, "namespace": "kube-system"},
				{"name": s.name, "namespace": "kube-system"},
			} {
				status, answer := proposed(t, s, s.name+"-own", destination)
				require.Equal(t, http.StatusBadRequest, status, answer)
				require.Contains(t, answer, "do not match any of the allowed destinations in project")
			}
			status, answer := proposed(t, s, s.name+"-own", map[string]any{"name": s.name, "namespace": "team"})
			require.Equal(t, http.StatusOK, status, answer)
		})
	}
}
