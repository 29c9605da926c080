package e2e_test

import (
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/cluster"
)

// What a spoke keeps to itself is closed to live access too, also when it was shared before; and open at once when it is shared again.
// What is open ends, and so it does when the policy becomes stricter.
func TestObjectsOfIgnoredApplicationAreClosedToTheHub(t *testing.T) {
	t.Parallel()
	s, app := newAutonomous(t, "closing", lab.AgentOptions{})
	app.shown(t)
	mine := core(s.spoke, "serviceaccounts", s.name, "mine")
	create(t, s.spoke, mine.selection, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ServiceAccount", "metadata": map[string]any{
			"name": "mine", "namespace": s.name, "annotations": map[string]any{
				"argocd.argoproj.io/tracking-id": app.declared.Name + ":/ServiceAccount:" + s.name + "/mine",
			},
		},
	}})
	grant(t, s.spoke, s.name)
	k := newKubectl(t, s.name, "", s.name)
	for _, round := range []string{"one", "two"} {
		events := k.watches(t, mine, round)
		app.spoke.edit(t, label(ignored, "true"))
		ends(t, events)
		app.hub.vanishes(t)
		out, err := k.try(t, "", "get", "serviceaccount", "mine")
		require.Error(t, err)
		require.Contains(t, out, "belongs to no Argo CD application that this cluster shares with the hub")
		app.spoke.edit(t, label(ignored, ""))
		app.shown(t)
	}

	events := k.watches(t, mine, "three")
	create(t, s.spoke, core(s.spoke, "configmaps", s.name, "argocd-agent-policy").selection, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "argocd-agent-policy", "namespace": s.name},
		"data": map[string]any{"policy.yaml": `{applications: false, rules: [{nonResourceURLs: ["/api", "/api/*", "/apis", "/apis/*"], verbs: [get]}]}`},
	}})
	ends(t, events)
	out, err := k.try(t, "", "get", "serviceaccount", "mine")
	require.Error(t, err)
	require.Contains(t, out, "no rule allows it")
}

// Somebody who reads a log is told no more of it either.
func TestLogsOfIgnoredApplicationEnd(t *testing.T) {
	t.Parallel()
	g := newGuestbook(t, "b", "unshared-logs")
	k := newKubectl(t, "b", "", g.declared.Into)
	lines := k.begin(t, "logs", "--follow", g.pod)
	readUntil(t, lines, strings.TrimSpace(cluster.PodLog))
	g.hub.edit(t, label(ignored, "true"))
	ends(t, lines)
	out, err := k.try(t, "", "logs", g.pod)
	require.Error(t, err)
	require.Contains(t, out, "belongs to no Argo CD application that this cluster shares with the hub")
	g.hub.edit(t, label(ignored, ""))
	g.hub.becomes(t, syncedAndHealthy)
}

// watches watches a ServiceAccount, and returns when what happens to it is seen.
func (k kubectl) watches(t *testing.T, account side, change string) io.Reader {
	t.Helper()
	events := k.begin(t, "get", "serviceaccount", account.selection.Name, "--watch", "--output=jsonpath={.metadata.annotations.change};")
	readUntil(t, events, ";")
	account.edit(t, annotate("change", change))
	readUntil(t, events, change+";")
	return events
}

// ends returns when there is no more to read.
func ends(t *testing.T, from io.Reader) {
	t.Helper()
	ended := make(chan error, 1)
	go func() {
		_, err := io.Copy(io.Discard, from)
		ended <- err
	}()
	select {
	case err := <-ended:
		require.NoError(t, err)
	case <-time.After(timeout):
		require.Fail(t, "it goes on")
	}
}
