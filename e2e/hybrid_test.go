package e2e_test

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/argocd"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/cluster"
)

// Names that docs/hybrid.md uses.
const (
	hybridAgent   = "berlin"
	hybridCluster = "berlin-direct" // the same spoke, as the hub's own controller reaches it
	hybridLabel   = "argocd-agent"
	hybridProject = "my-project"
)

// hybrid is a hub whose own application controller pushes to a spoke, and beside it a principal with an agent there.
type hybrid struct {
	lab       *lab.Lab
	kubectl   kubectl // on the hub
	principal *lab.Principal
	redis     *lab.Proxy
	agent     *lab.Agent
	stays     *guestbook // an Application that the hub's controller keeps
	moves     *guestbook // one that is migrated
	local     side       // one that somebody defined on the spoke
}

// What docs/hybrid.md tells people to do, in that order, and its validation checklist: each of its lines is a step.
func TestHybrid(t *testing.T) {
	if testing.Short() {
		t.Skip("a minute and a lab of its own: make e2e runs it")
	}
	h := newHybrid(t)
	for _, s := range []struct {
		name string
		does func(*hybrid, *testing.T)
	}{
		{"setup-1-install-the-principal", (*hybrid).installPrincipal},
		{"setup-2-point-argocd-server-to-the-redis-proxy", (*hybrid).pointToProxy},
		{"setup-3-create-the-agent", (*hybrid).createAgent},
		{"setup-4-install-the-agent-on-the-spoke", (*hybrid).installAgent},
		{"setup-5-verify-connectivity", (*hybrid).verifyConnectivity},
		{"migration-1-sync-the-project", (*hybrid).syncProject},
		{"migration-2-sync-the-repository", (*hybrid).syncRepository},
		{"migration-3-migrate-the-application", (*hybrid).migrate},
		{"check-principal-logs-the-label-selector", (*hybrid).principalLogsSelector},
		{"check-agent-is-connected", (*hybrid).agentIsConnected},
		{"check-redis-proxy-is-running", (*hybrid).redisProxyRuns},
		{"check-redis-server-is-the-redis-proxy", (*hybrid).redisServerIsProxy},
		{"check-agent-clusters-have-skip-reconcile", (*hybrid).agentClusterIsSkipped},
		{"check-traditional-clusters-have-no-skip-reconcile", (*hybrid).traditionalClusterIsNotSkipped},
		{"check-unlabelled-applications-sync-and-the-principal-does-nothing", (*hybrid).traditionalSyncs},
		{"check-resource-tree-of-traditional-applications", (*hybrid).traditionalTree},
		{"check-labelled-applications-are-picked-up", (*hybrid).labelledIsPickedUp},
		{"check-agent-applications-are-synced-and-healthy", (*hybrid).agentSynced},
		{"check-resource-tree-of-agent-applications", (*hybrid).agentTree},
		{"check-pod-logs-of-agent-applications", (*hybrid).agentLogs},
		{"check-hub-controller-leaves-agent-applications-alone", (*hybrid).controllerLeavesAlone},
		{"check-both-sync-at-the-same-time", (*hybrid).syncTogether},
		{"check-changes-of-one-kind-leave-the-other-alone", (*hybrid).changesStayApart},
		{"check-applications-of-the-spokes-own-are-left-alone", (*hybrid).localIsLeftAlone},
		{"an-agents-cluster-secret-is-lost-and-found", (*hybrid).secretIsLost},
		{"rollback", (*hybrid).rollBack},
		{"rollback-destination-first", (*hybrid).rollBackDestinationFirst},
		{"migration-again-and-deletion", (*hybrid).migrateAndDelete},
		{"nobody-has-said-the-password", (*hybrid).passwordIsKept},
	} {
		if !t.Run(s.name, func(t *testing.T) { s.does(h, t) }) {
			t.Fatalf("the steps after it rest on it\n%s", h.lab.Report())
		}
	}
}

// newHybrid starts what people have before they begin: Argo CD on the hub, which pushes two Applications to a spoke, on which
// another Argo CD has an Application of its own.
func newHybrid(t *testing.T) *hybrid {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	l, err := lab.Start(ctx, lab.Options{Spokes: []string{hybridAgent}, ArgoCD: true, Pods: true, HubController: true})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	h := &hybrid{lab: l, kubectl: kubectl{l.Hub.Kubeconfig, lab.Namespace}}
	// The lab has created the agent already; here that is a step.
	h.kubectl.run(t, "", "delete", "secret", "cluster-"+hybridAgent, "--ignore-not-found")
	h.kubectl.run(t, h.traditionalCluster(t), "apply", "-f", "-")
	h.kubectl.run(t, projectOf(hybridCluster), "apply", "-f", "-")
	h.kubectl.run(t, privateRepository, "apply", "-f", "-")
	h.stays, h.moves = h.newApplication(t, "stays"), h.newApplication(t, "my-app")
	local := argocd.Application{
		Namespace: lab.Namespace, Name: "local", RepoURL: l.Git.URL, Path: lab.ConfigPath, Destination: "in-cluster", Into: "local",
	}
	h.local = side{h.spoke(), argocd.Named(lab.Namespace, "local")}
	object := argocd.New(local)
	label(hybridLabel, "true")(object) // by chance: it is not the hub's for that
	require.NoError(t, h.spoke().Apply(ctx, object))
	for _, s := range []side{h.stays.hub, h.moves.hub, h.local} {
		s.becomes(t, syncedAndHealthy)
	}
	return h
}

func (h *hybrid) spoke() *lab.Cluster { return h.lab.Spoke(hybridAgent) }

// newApplication creates an Application that the hub's controller deploys on the spoke.
func (h *hybrid) newApplication(t *testing.T, name string) *guestbook {
	t.Helper()
	g := &guestbook{twin: &twin{
		hub:   side{h.lab.Hub, argocd.Named(lab.Namespace, name)},
		spoke: side{h.spoke(), argocd.Named(lab.Namespace, name)},
		declared: argocd.Application{
			Namespace: lab.Namespace, Name: name, RepoURL: h.lab.Git.URL, Path: lab.GuestbookPath, Destination: hybridCluster, Into: name,
		},
	}}
	object := argocd.New(g.declared)
	spec(hybridProject, "project")(object)
	finalize(cascadeFinalizer)(object)
	require.NoError(t, h.lab.Hub.Apply(t.Context(), object))
	return g
}

// traditionalCluster is the Secret by which Argo CD on the hub reaches the spoke itself.
func (h *hybrid) traditionalCluster(t *testing.T) string {
	t.Helper()
	config := h.spoke().RESTConfig()
	access, err := json.Marshal(map[string]any{
		"bearerToken": config.BearerToken, "tlsClientConfig": map[string]any{"caData": config.CAData},
	})
	require.NoError(t, err)
	return `apiVersion: v1
kind: Secret
metadata: {name: ` + hybridCluster + `, namespace: argocd, labels: {argocd.argoproj.io/secret-type: cluster}}
stringData:
  name: ` + hybridCluster + `
  server: https://` + h.spoke().Address + `
  config: '` + string(access) + `'
`
}

// projectOf is the project, for clusters of these names.
func projectOf(clusters ...string) string {
	text := `apiVersion: argoproj.io/v1alpha1
kind: AppProject
metadata: {name: ` + hybridProject + `, namespace: argocd}
spec:
  sourceRepos: ["*"]
  clusterResourceWhitelist: [{group: "*", kind: "*"}]
  destinations:
`
	for _, name := range clusters {
		text += "  - {namespace: '*', name: " + name + "}\n"
	}
	return text
}

const privatePassword = "confidential"

const privateRepository = `apiVersion: v1
kind: Secret
metadata: {name: my-private-repo, namespace: argocd, labels: {argocd.argoproj.io/secret-type: repository}}
stringData:
  type: git
  url: https://git.example.com/my-org/backend-services.git
  project: ` + hybridProject + `
  password: ` + privatePassword + `
`

func (h *hybrid) installPrincipal(t *testing.T) {
	var err error
	h.principal, err = h.lab.NewPrincipal(t.Context(), lab.PrincipalOptions{Env: []string{
		"ARGOCD_PRINCIPAL_LABEL_SELECTOR=argocd-agent=true", "ARGOCD_PRINCIPAL_DESTINATION_BASED_MAPPING=true",
		"ARGOCD_PRINCIPAL_LOG_LEVEL=debug", // to see that there is no activity
	}})
	require.NoError(t, err)
	h.begin(t, h.principal.Start)
	proxies := lab.ProxyOptions{Principal: h.principal}
	h.lab.Kubeproxy, err = h.lab.NewKubeproxy(t.Context(), proxies)
	require.NoError(t, err)
	h.begin(t, h.lab.Kubeproxy.Start)
	h.redis, err = h.lab.NewRedisproxy(t.Context(), proxies)
	require.NoError(t, err)
	h.begin(t, h.redis.Start)
}

// begin starts a program.
func (h *hybrid) begin(t *testing.T, start func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	require.NoError(t, start(ctx))
}

// pointToProxy changes where Argo CD's programs find Redis. All of them read that setting when they start: argocd-server is
// restarted for it, and the controller will be one day.
func (h *hybrid) pointToProxy(t *testing.T) {
	h.kubectl.run(t, "", "patch", "configmap", "argocd-cmd-params-cm", "-n", "argocd", "--type", "merge",
		"-p", `{"data":{"redis.server":"`+h.redis.Address+`"}}`)
	address := h.redisServer(t)
	h.begin(t, func(ctx context.Context) error { return h.lab.Hub.ArgoCD.StartServer(ctx, address) })
	h.begin(t, func(ctx context.Context) error { return h.lab.Hub.ArgoCD.StartController(ctx, address) })
}

func (h *hybrid) redisServer(t *testing.T) string {
	t.Helper()
	return h.kubectl.run(t, "", "get", "configmap", "argocd-cmd-params-cm", "-n", "argocd", "-o", `jsonpath={.data.redis\.server}`)
}

func (h *hybrid) createAgent(t *testing.T) {
	require.NoError(t, h.lab.RegisterAgent(t.Context(), hybridAgent))
	h.agentClusterIsSkipped(t)
}

func (h *hybrid) installAgent(t *testing.T) {
	var err error
	h.agent, err = h.lab.NewAgent(t.Context(), lab.AgentOptions{
		Spoke: hybridAgent, Principal: h.principal, Args: []string{"--destination-based-mapping=true"}, Env: []string{
			"ARGOCD_AGENT_CREATE_NAMESPACE=true", "ARGOCD_AGENT_ALLOWED_NAMESPACES=*",
			"ARGOCD_AGENT_LABEL_SELECTOR=argocd-agent=true", "ARGOCD_AGENT_IGNORE_UNMANAGED_APPS=true",
		},
	})
	require.NoError(t, err)
	h.begin(t, h.agent.Start)
	h.begin(t, h.agent.WaitConnected)
}

func (h *hybrid) verifyConnectivity(t *testing.T) {
	h.agentIsConnected(t)
	says(t, h.agent, lab.ConnectedAgentLine)
	h.listed(t, h.stays, h.moves)
}

// listed fails unless `argocd app list` has the Applications, Synced and Healthy.
func (h *hybrid) listed(t *testing.T, apps ...*guestbook) {
	t.Helper()
	lines := strings.Split(cliAt(t, h.lab, "app", "list"), "\n")
	for _, app := range apps {
		found := ""
		for _, line := range lines {
			if strings.HasPrefix(line, "argocd/"+app.declared.Name+" ") {
				found = line
			}
		}
		require.Contains(t, found, "Synced")
		require.Contains(t, found, "Healthy")
	}
}

func (h *hybrid) syncProject(t *testing.T) {
	h.kubectl.run(t, projectOf(hybridCluster, hybridAgent), "apply", "-f", "-")
	h.kubectl.run(t, "", "label", "appproject", hybridProject, "-n", "argocd", "argocd-agent=true")
	there := project(h.spoke(), lab.Namespace, hybridProject).becomes(t, labelled(hybridLabel, "true"))
	destinations, _, err := unstructured.NestedSlice(there.Object, "spec", "destinations")
	require.NoError(t, err)
	require.Len(t, destinations, 2, "what is for the hub's own cluster stays there, and the agent's own namespace is denied")
}

func (h *hybrid) syncRepository(t *testing.T) {
	h.kubectl.run(t, "", "label", "secret", "my-private-repo", "-n", "argocd", "argocd-agent=true")
	core(h.spoke(), "secrets", lab.Namespace, "my-private-repo").becomes(t,
		has(inBase64(privatePassword), "data", "password"))
}

func (h *hybrid) passwordIsKept(t *testing.T) {
	requireSilence(t, privatePassword, h.principal.LogPath(), h.agent.LogPath())
}

// migrate moves an Application as the document says, and what it deployed stays.
func (h *hybrid) migrate(t *testing.T) {
	before := h.deployed(t, h.moves)
	h.sendTo(t, hybridAgent)
	h.kubectl.run(t, "", "label", "application", "my-app", "-n", "argocd", "argocd-agent=true")
	h.moves.arrives(t, syncedAndHealthy, finalized(cascadeFinalizer))
	h.moves.hub.becomes(t, syncedAndHealthy, h.sameStatus(t, h.moves))
	require.Equal(t, before, h.deployed(t, h.moves), "nothing is deployed anew")
}

// deployed returns the UIDs of what an Application has on the spoke.
func (h *hybrid) deployed(t *testing.T, app *guestbook) map[string]string {
	t.Helper()
	uids := make(map[string]string)
	for kind, s := range map[string]cluster.Selection{
		"Deployment": {Resource: deployments(), Namespace: app.declared.Into, Name: "guestbook"},
		"ConfigMap":  app.configMapOf("guestbook").selection,
	} {
		object := side{h.spoke(), s}.get(t)
		require.Nil(t, object.GetDeletionTimestamp())
		uids[kind] = string(object.GetUID())
	}
	return uids
}

// configMapOf is a ConfigMap that an Application deploys.
func (g *guestbook) configMapOf(name string) side {
	return core(g.spoke.cluster, "configmaps", g.declared.Into, name)
}

// sameStatus holds for the hub's Application when it shows what the spoke's says now.
func (h *hybrid) sameStatus(t *testing.T, app *guestbook) condition {
	t.Helper()
	return func(hub *unstructured.Unstructured) bool {
		return equalStatus(hub.Object["status"], displayed(hybridAgent, app.spoke.get(t).Object["status"]))
	}
}

// logSince returns what a program has written since a mark.
func logSince(t *testing.T, path string, mark int64) string {
	t.Helper()
	log, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(log[mark:])
}

// syncTogether has both Applications synced at once.
func (h *hybrid) syncTogether(t *testing.T) {
	both := []*guestbook{h.stays, h.moves}
	for _, app := range both { // argocd-server answers before a sync begins
		ask(t, http.MethodPost, app.twin, "/sync", "", map[string]any{
			"appNamespace": app.declared.Namespace, "infos": []any{map[string]any{"name": "step", "value": "together"}},
		})
	}
	for _, app := range both {
		app.hub.becomes(t, syncedAndHealthy, absent("operation"), has("Succeeded", "status", "operationState", "phase"),
			func(object *unstructured.Unstructured) bool {
				infos, _, _ := unstructured.NestedSlice(object.Object, "status", "operationState", "operation", "info")
				return slices.ContainsFunc(infos, func(info any) bool { return info.(map[string]any)["value"] == "together" })
			})
	}
}
