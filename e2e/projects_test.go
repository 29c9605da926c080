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
func TestMirroredProjectPermitsWhatSpokeProjectPermits(t *testing.T) {
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

// frozen are the windows of a project that nothing may be synced to some clusters, ever.
func frozen(clusters ...any) []any {
	return []any{map[string]any{
		"kind": "deny", "schedule": "* * * * *", "duration": "24h", "clusters": clusters,
	}}
}

// newDeploying makes a project of which Applications of the agent b may deploy anything, and waits until the spoke has it.
func newDeploying(t *testing.T, name string, changes ...change) {
	t.Helper()
	all := spec([]any{map[string]any{"name": "b", "namespace": "*"}}, "destinations")
	kinds := spec([]any{map[string]any{"group": "*", "kind": "*"}}, "clusterResourceWhitelist") // such as namespaces
	hub := project(shared.Hub, lab.Namespace, name).declare(t, "AppProject", projectFor("b"), append(changes, all, kinds)...)
	project(shared.Spoke("b"), lab.Namespace, name).becomes(t, annotated(sourceUID, string(hub.get(t).GetUID())))
}

// A window is for an agent's cluster as the hub calls it, and the application controller on the spoke, for which that is
// in-cluster, has to keep it.
func TestSyncWindowOfAgentClusterAppliesOnSpoke(t *testing.T) {
	t.Parallel()
	for name, cluster := range map[string]string{"frozen-name": "b", "frozen-address": "https://*[?]agentName=b"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			name := unique(name)
			newDeploying(t, name, spec(frozen(cluster), "syncWindows"))
			app := newTwin("b", name).automated().create(t, spec(name, "project"))

			// The controller begins an automated sync before it writes down what it has found.
			found := app.spoke.becomes(t, has("OutOfSync", "status", "sync", "status"))
			require.NotContains(t, found.Object, "operation")
			require.NotContains(t, found.Object["status"], "operationState")
		})
	}
}

// A window for another cluster means nothing on the spoke, and no cluster there belongs to the project.
func TestProjectRulesForOtherClustersDoNotBlockSpoke(t *testing.T) {
	t.Parallel()
	name := unique("scoped")
	newDeploying(t, name, spec(true, "permitOnlyProjectScopedClusters"), spec(frozen("a"), "syncWindows"))
	newTwin("b", name).automated().create(t, spec(name, "project")).configMap().becomes(t)
}

// The hub's argocd-server keeps the windows of an autonomous agent's project, before it lets people sync.
func TestSyncWindowOfAutonomousAgentAppliesOnHub(t *testing.T) {
	t.Parallel()
	content := projectFor("*")["spec"].(map[string]any)
	content["syncWindows"] = frozen("in-cluster")
	s, app := newOfProject(t, "freezing", content)
	status, answer := request(t, http.MethodPost, shared.Hub.ArgoCD.URL+"/api/v1/applications/"+app.declared.Name+"/sync",
		map[string]any{"appNamespace": s.name})
	require.Equal(t, http.StatusForbidden, status, answer)
	require.Contains(t, answer, "blocked by sync window")
}
