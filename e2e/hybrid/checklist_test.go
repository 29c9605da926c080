package hybrid_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/argocd"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/cluster"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/installation"
)

// checkRows checks each row of the page's checklist, and fails for one that nothing checks.
func (r *reader) checkRows(t *testing.T) {
	t.Helper()
	checks := map[string]func(*testing.T){
		"the principal's log": r.principalLogs,
		"`/readyz` of redisproxy; `redis.server` in `argocd-cmd-params-cm`": r.redisIsProxy,
		"the cluster Secrets":                         r.clustersAreSkipped,
		"an Application without the label":            r.unlabelled,
		"an Application with the label":               r.labelled,
		"the log of the hub's application controller": r.controllerLogs,
		"both, synced at the same time, or changed":   r.changesStayApart,
	}
	rows, err := r.Rows("Checklist")
	require.NoError(t, err)
	for _, row := range rows {
		check := checks[row[0]]
		require.NotNil(t, check, "nothing checks the row %q", row[0])
		delete(checks, row[0])
		if !t.Run(row[0], check) {
			t.FailNow()
		}
	}
	require.Empty(t, checks, "the page has no such rows")
}

// overview is the block of commands for the first rows.
const overview = "rollout status deployment/argocd-agent-redis-proxy"

func (r *reader) principalLogs(t *testing.T) {
	shown := r.run(t, overview)
	require.Contains(t, shown, `label_selector="argocd-agent=true,`)
	require.Contains(t, shown, "mapping=destination")
	require.Regexp(t, `An agent connected to the subscription stream.*\bagent=`+agent+`\b`, shown)
}

func (r *reader) redisIsProxy(t *testing.T) {
	shown := r.run(t, overview)
	require.Contains(t, shown, `deployment "argocd-agent-redis-proxy" successfully rolled out`)
	require.Contains(t, shown, "\nargocd-agent-redis-proxy:6379\n")
}

func (r *reader) clustersAreSkipped(t *testing.T) {
	skipped := make(map[string]string)
	for line := range strings.Lines(r.run(t, overview)) {
		if fields := strings.Fields(line); strings.HasPrefix(line, "cluster-") {
			require.Len(t, fields, 2)
			skipped[fields[0]] = fields[1]
		}
	}
	require.Len(t, skipped, 2)
	for name, is := range skipped {
		want := "<none>"
		if name == "cluster-"+agent {
			want = "true"
		}
		require.Equal(t, want, is, name)
	}
}

func (r *reader) unlabelled(t *testing.T) {
	r.heals(t, stays)
	r.showsTree(t, stays, r.run(t, "app get "+stays+" --output tree"))
	log := r.types(t, "kubectl --context hub logs deployment/argocd-agent-principal -n argocd")
	require.Contains(t, log, "An agent connected")
	require.NotContains(t, log, stays)
	there, err := r.spoke.Get(t.Context(), argocd.Named(installation.Namespace, stays))
	require.NoError(t, err)
	require.Nil(t, there)
}

func (r *reader) labelled(t *testing.T) {
	there := r.becomes(t, r.spoke, argocd.Named(installation.Namespace, moves), argocd.SyncedAndHealthy)
	require.Equal(t, "true", there.GetLabels()[label])
	require.Equal(t, "in-cluster", text(there, "spec", "destination", "name"))
	r.becomes(t, r.hub, argocd.Named(installation.Namespace, moves), argocd.SyncedAndHealthy)
	shown := r.run(t, "argocd app logs "+moves)
	r.showsTree(t, moves, shown)
	require.Contains(t, shown, "\nserving\n")
	r.heals(t, moves)
}

// controllerLogs has the hub's controller log what it does while both are synced and refreshed.
func (r *reader) controllerLogs(t *testing.T) {
	before := map[string]string{moves: r.operation(t, moves), stays: r.operation(t, stays)}
	lines := 0
	for line := range strings.Lines(r.run(t, "--since-time")) {
		if strings.HasPrefix(line, `{"`) { // the others are what argocd prints
			lines++
			require.NotContains(t, line, moves)
			require.Contains(t, line, stays)
		}
	}
	require.Positive(t, lines)
	for app, operation := range before {
		r.operates(t, app, operation)
	}
}

// changesStayApart changes an Application of either kind, and looks whether that does anything to the other. Before, they were synced at the same
// time.
func (r *reader) changesStayApart(t *testing.T) {
	for _, pair := range [][2]string{{stays, moves}, {moves, stays}} {
		changed, other := pair[0], pair[1]
		before, operation := r.deployed(t, other), r.operation(t, other)
		r.types(t, `kubectl --context hub patch application `+changed+` -n argocd --type merge -p '{"spec":{"source":{"directory":{"recurse":true}}}}'`)
		r.becomes(t, r.spoke, cluster.Selection{Resource: resource("configmaps"), Namespace: changed, Name: more}, exists)
		r.becomes(t, r.hub, argocd.Named(installation.Namespace, changed), func(object *unstructured.Unstructured) bool {
			recurses, _, _ := unstructured.NestedBool(object.Object, "status", "sync", "comparedTo", "source", "directory", "recurse")
			return recurses && argocd.SyncedAndHealthy(object)
		})
		require.Equal(t, before, r.deployed(t, other))
		require.Equal(t, operation, r.operation(t, other), "nothing was synced anew")
	}
}
