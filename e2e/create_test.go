package e2e_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/cluster"
)

const cronJobManifest = `apiVersion: batch/v1
kind: CronJob
metadata: {name: nightly}
spec:
  schedule: "0 0 31 2 *"
  suspend: true
  jobTemplate:
    metadata: {labels: {kind: nightly}}
    spec:
      backoffLimit: 2
      template:
        spec:
          restartPolicy: Never
          containers:
          - {name: work, image: example.com/work, command: [sh, -c, "echo $HOME"], resources: {}, env: [{name: A, value: ""}]}
          volumes: [{name: scratch, emptyDir: {}}]
`

// A person runs the action of a CronJob in Argo CD's UI. Whoever creates something else is refused.
func TestUIMakesAJobFromACronJob(t *testing.T) {
	t.Parallel()
	path := unique("cronjob")
	_, err := shared.Git.Commit(t.Context(), "A CronJob", map[string]string{path + "/cronjob.yaml": cronJobManifest})
	require.NoError(t, err)
	app := newTwin("a", "cron").automated()
	app.declared.Path = path
	g := &guestbook{twin: app.create(t, finalize(cascadeFinalizer))}
	g.hub.becomes(t, syncedAndHealthy)
	cronJob := g.of("batch", "v1", "CronJob", "nightly")
	require.Contains(t, ask(t, http.MethodGet, g.twin, "/resource/actions", cronJob, nil), "create-job")
	trees := follow(t, "/api/v1/stream/applications/"+g.declared.Name+"/resource-tree?appNamespace="+g.declared.Namespace)
	ask(t, http.MethodPost, g.twin, "/resource/actions/v2", "", map[string]any{
		"appNamespace": g.declared.Namespace, "namespace": g.declared.Into, "resourceName": "nightly",
		"group": "batch", "version": "v1", "kind": "CronJob", "action": "create-job",
	})
	trees.until(t, func(line string) bool { return strings.Contains(line, `"kind":"Job"`) })
	var made *unstructured.Unstructured
	for _, n := range g.tree(t) {
		if n.Kind == "Job" {
			jobs := schema.GroupVersionResource{Group: "batch", Version: "v1", Resource: "jobs"}
			made = side{g.spoke.cluster, cluster.Selection{Resource: jobs, Namespace: g.declared.Into, Name: n.Name}}.get(t)
		}
	}
	require.NotNil(t, made, "the tree has the Job")
	require.Equal(t, "nightly", made.GetLabels()["kind"])

	k := newKubectl(t, "a", "", g.declared.Into)
	text, err := made.MarshalJSON()
	require.NoError(t, err)
	out, err := k.try(t, strings.ReplaceAll(string(text), "example.com/work", "example.com/another"), "create", "--validate=false", "-f=-")
	require.Error(t, err)
	require.Contains(t, out, "it must be what the action of Argo CD creates from its owner")
	out, err = k.try(t, "", "create", "job", "mine", "--from=cronjob/nightly")
	require.Error(t, err)
	require.Regexp(t, "what is created must be JSON, so that it can be compared with its owner|it must be what the action of Argo CD creates", out)
	out, err = k.try(t, `{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "mine"}}`, "create", "--validate=false", "-f=-")
	require.Error(t, err)
	require.Contains(t, out, "only the Jobs and Workflows can be created")
}
