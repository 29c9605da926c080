package e2e_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/argocd"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/cluster"
)

// The lines of the validation checklist of docs/hybrid.md, and the way back.

func (h *hybrid) principalLogsSelector(t *testing.T) {
	for _, program := range []logging{h.principal, h.agent} {
		says(t, program, `label_selector="argocd-agent=true,`)
	}
}

func (h *hybrid) agentIsConnected(t *testing.T) {
	says(t, h.principal, lab.ConnectedPrincipalLine)
	require.Contains(t, logSince(t, h.principal.LogPath(), 0), "agent="+hybridAgent)
	requireReady(t, h.principal.HealthURL)
	requireReady(t, h.agent.HealthURL)
}

func (h *hybrid) redisProxyRuns(t *testing.T) { requireReady(t, h.redis.HealthURL) }

func (h *hybrid) redisServerIsProxy(t *testing.T) {
	require.Equal(t, h.redis.Address, h.redisServer(t))
}

// skips is the annotation of a cluster Secret that has the hub's controller pass a cluster over.
func (h *hybrid) skips(t *testing.T, secret string) string {
	t.Helper()
	return h.kubectl.run(t, "", "get", "secret", secret, "-n", "argocd",
		"-o", `jsonpath={.metadata.annotations.argocd\.argoproj\.io/skip-reconcile}`)
}

func (h *hybrid) agentClusterIsSkipped(t *testing.T) {
	require.Equal(t, "true", h.skips(t, "cluster-"+hybridAgent))
}

func (h *hybrid) traditionalClusterIsNotSkipped(t *testing.T) {
	require.Empty(t, h.skips(t, hybridCluster))
}

// acks is how often an agent has answered the principal about an Application.
func (h *hybrid) acks(t *testing.T) float64 {
	t.Helper()
	n, err := metric(t.Context(), h.principal.MetricsURL, `argocd_principal_sync_acks_total{facet="application",result="done"}`)
	require.NoError(t, err)
	return n
}

// traditionalSyncs has the hub's controller take in a change, and put back what was deleted.
func (h *hybrid) traditionalSyncs(t *testing.T) {
	acks := h.acks(t)
	require.Positive(t, acks, "there has been activity for the labelled one")
	greeting := h.stays.configMapOf("guestbook")
	old := greeting.get(t).GetUID()
	greeting.delete(t)
	greeting.becomes(t, func(object *unstructured.Unstructured) bool { return object.GetUID() != old })
	h.stays.hub.edit(t, spec(lab.ConfigPath, "source", "path"))
	h.stays.configMapOf("config").becomes(t)
	greeting.vanishes(t)
	h.stays.hub.edit(t, spec(lab.GuestbookPath, "source", "path"))
	greeting.becomes(t)
	h.stays.hub.becomes(t, syncedAndHealthy, h.synced(lab.GuestbookPath))
	require.Equal(t, acks, h.acks(t))
	require.NotContains(t, logSince(t, h.principal.LogPath(), 0), h.stays.declared.Name)
	there, err := h.spoke().Get(t.Context(), h.stays.spoke.selection)
	require.NoError(t, err)
	require.Nil(t, there)
}

// synced holds for an Application that is at rest, and whose resources are those of this path.
func (h *hybrid) synced(path string) condition {
	return func(object *unstructured.Unstructured) bool {
		return argocd.SyncedAndHealthy(object) && absent("operation")(object) && text(object, "status", "sync", "comparedTo", "source", "path") == path
	}
}

func (h *hybrid) traditionalTree(t *testing.T) { h.showsPods(t, h.stays) }

// showsPods fails unless argocd-server shows the Pods that an Application has, after one of them was replaced: what it has is
// not what some Redis once had.
func (h *hybrid) showsPods(t *testing.T, app *guestbook) {
	t.Helper()
	pods := core(h.spoke(), "pods", app.declared.Into, "")
	before, err := h.spoke().List(t.Context(), pods.selection)
	require.NoError(t, err)
	require.Len(t, before, 2)
	old := before[0].GetName()
	core(h.spoke(), "pods", app.declared.Into, old).delete(t)
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	now, err := h.spoke().WaitAll(ctx, pods.selection, func(objects cluster.Objects) bool {
		return len(objects) == 2 && objects[app.declared.Into+"/"+old] == nil
	})
	require.NoError(t, err)
	trees := followAt(t, h.lab, "/api/v1/stream/applications/"+app.declared.Name+"/resource-tree?appNamespace="+lab.Namespace)
	trees.until(t, func(line string) bool {
		for _, pod := range now {
			app.pod = pod.GetName()
			if !strings.Contains(line, `"name":"`+app.pod+`"`) {
				return false
			}
		}
		return !strings.Contains(line, `"name":"`+old+`"`)
	})
}

func (h *hybrid) labelledIsPickedUp(t *testing.T) {
	h.moves.arrives(t, labelled(hybridLabel, "true"), has("in-cluster", "spec", "destination", "name"))
}

func (h *hybrid) agentSynced(t *testing.T) {
	h.listed(t, h.moves)
	require.Contains(t, cliAt(t, h.lab, "app", "get", "my-app"), "Healthy")
	h.moves.spoke.becomes(t, syncedAndHealthy)
}

func (h *hybrid) agentTree(t *testing.T) {
	h.showsPods(t, h.moves)
	greeting := h.moves.of("", "v1", "ConfigMap", "guestbook")
	require.Contains(t, ask(t, http.MethodGet, h.moves.twin, "/resource", greeting, nil), "hello")
	require.Contains(t, ask(t, http.MethodGet, h.moves.twin, "/managed-resources", "", nil), "greeting")
}

func (h *hybrid) agentLogs(t *testing.T) { h.moves.readsLogs(t) }

// controllerLeavesAlone gives the hub's controller every reason to look at the agent's Application, and then something to do
// of its own, which it does later.
func (h *hybrid) controllerLeavesAlone(t *testing.T) {
	controller := h.lab.Hub.ArgoCD.Controller
	mark := controller.Mark()
	clickRefresh(t, h.moves.twin, "hard")
	h.moves.hub.edit(t, label("team", "blue"))
	h.moves.arrives(t, labelled("team", "blue"))
	h.moves.hub.edit(t, spec(int64(3), "revisionHistoryLimit"))
	h.moves.arrives(t, func(object *unstructured.Unstructured) bool {
		limit, _, _ := unstructured.NestedInt64(object.Object, "spec", "revisionHistoryLimit")
		return limit == 3
	})
	greeting := h.moves.configMapOf("guestbook")
	old := greeting.get(t).GetUID()
	greeting.delete(t)
	greeting.becomes(t, func(object *unstructured.Unstructured) bool { return object.GetUID() != old })
	h.moves.spoke.becomes(t, absent("operation"), syncedAndHealthy)
	h.moves.hub.becomes(t, absent("operation"), h.sameStatus(t, h.moves))
	clickRefresh(t, h.stays.twin, "hard")
	log := logSince(t, controller.LogPath(), mark)
	require.Contains(t, log, "application=stays")
	require.NotContains(t, log, "my-app")
}

// changesStayApart changes an Application of either kind, and looks whether that does anything to the other.
func (h *hybrid) changesStayApart(t *testing.T) {
	for _, pair := range [][2]*guestbook{{h.stays, h.moves}, {h.moves, h.stays}} {
		changed, other := pair[0], pair[1]
		before, seen := h.deployed(t, other), watch(t, other.hub)
		changed.hub.edit(t, spec(lab.ConfigPath, "source", "path"))
		changed.hub.becomes(t, h.synced(lab.ConfigPath))
		changed.configMapOf("guestbook").vanishes(t)
		changed.hub.edit(t, spec(lab.GuestbookPath, "source", "path"))
		changed.hub.becomes(t, h.synced(lab.GuestbookPath))
		require.Equal(t, before, h.deployed(t, other))
		require.Equal(t, []string{"Synced"}, seen.distinct(argocd.Sync))
		require.Equal(t, []string{"Healthy"}, seen.distinct(argocd.Health))
		require.Len(t, seen.distinct(func(object *unstructured.Unstructured) string {
			return text(object, "status", "operationState", "startedAt")
		}), 1, "nothing was synced anew")
		require.Len(t, seen.distinct(specOf), 1)
	}
}

func specOf(object *unstructured.Unstructured) string { return fmt.Sprint(object.Object["spec"]) }

func (h *hybrid) localIsLeftAlone(t *testing.T) {
	local := h.local.becomes(t, syncedAndHealthy)
	require.NotContains(t, local.GetAnnotations(), sourceUID)
	there, err := h.lab.Hub.Get(t.Context(), h.local.selection)
	require.NoError(t, err)
	require.Nil(t, there)
}

// secretIsLost deletes the agent's cluster Secret, after which the hub's controller takes the agent's Application for its own
// and knows no cluster for it. Once the Secret is back the spoke's word holds, and nothing has come of it there.
func (h *hybrid) secretIsLost(t *testing.T) {
	before := h.deployed(t, h.moves)
	secret := h.kubectl.run(t, "", "get", "secret", "cluster-"+hybridAgent, "-n", "argocd", "-o", "yaml")
	h.kubectl.run(t, "", "delete", "secret", "cluster-"+hybridAgent, "-n", "argocd")
	h.moves.hub.edit(t, label("team", "red"))
	h.moves.hub.becomes(t, has("Unknown", "status", "sync", "status"))
	h.kubectl.run(t, secret, "create", "-f", "-")
	h.moves.hub.becomes(t, syncedAndHealthy, h.sameStatus(t, h.moves))
	require.Equal(t, before, h.deployed(t, h.moves))
	h.moves.arrives(t, labelled("team", "red"), syncedAndHealthy)
}

// rollBack gives the Application back to the hub's controller. What it deployed stays, though it has the finalizer by which
// resources go with their Application.
func (h *hybrid) rollBack(t *testing.T) {
	before := h.deployed(t, h.moves)
	h.unlabel(t)
	h.moves.spoke.vanishes(t)
	h.sendTo(t, hybridCluster)
	h.isBack(t, before)
}

// rollBackDestinationFirst does it in the other order, with both controllers at work for a moment.
func (h *hybrid) rollBackDestinationFirst(t *testing.T) {
	h.migrate(t)
	before := h.deployed(t, h.moves)
	h.sendTo(t, hybridCluster)
	h.moves.spoke.vanishes(t)
	h.unlabel(t)
	h.isBack(t, before)
}

func (h *hybrid) sendTo(t *testing.T, cluster string) {
	t.Helper()
	h.kubectl.run(t, "", "patch", "application", "my-app", "-n", "argocd", "--type", "merge",
		"-p", `{"spec":{"destination":{"name":"`+cluster+`"}}}`)
}

func (h *hybrid) unlabel(t *testing.T) {
	t.Helper()
	h.kubectl.run(t, "", "label", "application", "my-app", "-n", "argocd", hybridLabel+"-")
}

// isBack fails unless the hub's controller has the Application, with what it had deployed before, and nobody else does.
func (h *hybrid) isBack(t *testing.T, before map[string]string) {
	t.Helper()
	h.moves.hub.becomes(t, syncedAndHealthy, has(hybridCluster, "status", "sync", "comparedTo", "destination", "name"))
	require.Equal(t, before, h.deployed(t, h.moves))
	now := h.moves.hub.get(t)
	require.True(t, finalized(cascadeFinalizer)(now))
	require.NotContains(t, now.GetAnnotations(), sourceUID)
	h.showsPods(t, h.moves)
	h.moves.readsLogs(t)

	acks := h.acks(t)
	h.moves.hub.edit(t, spec(lab.ConfigPath, "source", "path"))
	h.moves.hub.becomes(t, h.synced(lab.ConfigPath))
	h.moves.hub.edit(t, spec(lab.GuestbookPath, "source", "path"))
	h.moves.hub.becomes(t, h.synced(lab.GuestbookPath))
	require.Equal(t, acks, h.acks(t), "the principal has nothing to do with it any more")
}

// migrateAndDelete migrates the Application once more and deletes it with what it deployed; the other one stays.
func (h *hybrid) migrateAndDelete(t *testing.T) {
	h.migrate(t)
	stays := h.deployed(t, h.stays)
	h.kubectl.run(t, "", "delete", "application", "my-app", "-n", "argocd", "--timeout=50s")
	h.moves.spoke.vanishes(t)
	apps := cluster.Selection{Resource: deployments(), Namespace: h.moves.declared.Into, Name: "guestbook"}
	side{h.spoke(), apps}.vanishes(t)
	require.Equal(t, stays, h.deployed(t, h.stays))
	h.stays.hub.becomes(t, syncedAndHealthy)
}
