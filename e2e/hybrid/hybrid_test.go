// Package hybrid_test follows docs/hybrid.md on real nodes, as a reader does who has an Argo CD that pushes to a cluster.
package hybrid_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/argocd"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/installation"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/node"
)

// Names that the page uses.
const (
	agent      = "berlin"
	direct     = "berlin-direct" // the same spoke, as the hub's own controller reaches it
	label      = "argocd-agent"
	project    = "my-project"
	repository = "my-private-repo"
	moves      = "my-app"
	stays      = "other-app"
)

// What docs/hybrid.md tells people to type, word by word and in that order; its checklist, row by row; and the way back.
func TestHybridInstalledByCharts(t *testing.T) {
	if testing.Short() {
		t.Skip("minutes, and real nodes of its own: make e2e runs it")
	}
	t.Parallel()
	if err := node.Unsupported(); err != nil {
		t.Skip("there are no real nodes here:", err)
	}
	r := begin(t)
	r.setUp(t)
	r.move(t)
	r.checkRows(t)
	r.moveBack(t)
	r.localIsLeftAlone(t)
	require.Empty(t, r.Unread(), "these commands of the page nobody has tried")
}

func (r *reader) setUp(t *testing.T) {
	t.Helper()
	r.run(t, "helm install argocd-agent "+r.lab.Chart("hub"))
	r.run(t, `"redis.server"`)
	// As it says, these read the setting too, when they start one day. They come back while the reader goes on.
	r.types(t, "kubectl --context hub rollout restart statefulset/argocd-application-controller deployment/argocd-repo-server -n argocd")

	require.True(t, strings.HasSuffix(r.run(t, "argocd-agentctl agent create"), "\ntrue\n"), "the agent's cluster is to be skipped")
	r.run(t, "core-install.yaml")
	r.defineLocal(t)
	r.run(t, "helm install argocd-agent "+r.lab.Chart("spoke"))

	shown := r.run(t, "argocd app list")
	require.Contains(t, shown, "Watching shared objects")
	require.Contains(t, shown, "An agent connected")
	for _, app := range []string{moves, stays} {
		require.Regexp(t, `argocd/`+app+` .*\bSynced +Healthy\b`, shown)
	}
}

func (r *reader) move(t *testing.T) {
	t.Helper()
	before := r.deployed(t, moves)
	r.run(t, "get appprojects")
	r.run(t, "patch appproject")
	there := r.becomes(t, r.spoke, named("appprojects", project), exists)
	destinations, _, err := unstructured.NestedSlice(there.Object, "spec", "destinations")
	require.NoError(t, err)
	require.Equal(t, []any{
		map[string]any{"name": "in-cluster", "namespace": "*", "server": "https://kubernetes.default.svc"},
		map[string]any{"namespace": installation.Namespace, "server": "!**"},
	}, destinations, "what is for the hub's own cluster stays there, and the agent's own namespace is denied")

	r.run(t, "patch secret")
	r.becomes(t, r.spoke, named("secrets", repository), exists)
	r.run(t, "argocd-gpg-keys-cm")
	r.becomes(t, r.spoke, named("configmaps", "argocd-gpg-keys-cm"), isReplica)

	r.run(t, `{"name":"berlin","server":null}`)
	r.run(t, "argocd app wait "+moves+" --timeout")
	r.becomes(t, r.hub, argocd.Named(installation.Namespace, moves), argocd.SyncedAndHealthy)
	require.Equal(t, before, r.deployed(t, moves), "nothing is deployed anew")
}

func (r *reader) moveBack(t *testing.T) {
	t.Helper()
	before := r.deployed(t, moves)
	r.run(t, "--for=delete")
	there, err := r.spoke.Get(t.Context(), argocd.Named(installation.Namespace, moves))
	require.NoError(t, err)
	require.Nil(t, there)
	now := r.becomes(t, r.hub, argocd.Named(installation.Namespace, moves), func(object *unstructured.Unstructured) bool {
		return argocd.SyncedAndHealthy(object) && text(object, "status", "sync", "comparedTo", "destination", "name") == direct
	})
	require.Equal(t, []string{finalizer}, now.GetFinalizers())
	require.False(t, isReplica(now))
	require.Equal(t, before, r.deployed(t, moves), "nothing is deployed anew")
	r.heals(t, moves)
	r.shows(t, moves)
}
