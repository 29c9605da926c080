package hostile_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/cluster"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/converge"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/facets"
)

// define has the hub define an Application for the managed liar, and returns how to select it, and its UID.
func define(t *testing.T, s *stage, name string) (cluster.Selection, string) {
	t.Helper()
	create(t, s.lab.Hub, `{"apiVersion":"argoproj.io/v1alpha1","kind":"Application","metadata":{"name":"`+name+`","namespace":"`+managedLiar+`"},`+specText+`}`)
	selection := cluster.Selection{Resource: apps(), Namespace: managedLiar, Name: name}
	return selection, string(get(t, s.lab.Hub, selection).GetUID())
}

// statusLies are a managed agent's about statuses.
func statusLies() []lie {
	return []lie{
		{
			who: agent, about: "application-status", sends: "an operation with manifests of its own whose info is named `…\\u002fintent`",
			happens: "on the hub there is no intent, and nothing that a controller could run",
			try: func(t *testing.T, s *stage) {
				t.Helper()
				selection, uid := define(t, s, "lie-intent")
				lie := `{"status":{"sync":{"status":"Synced"},` +
					`"operationState":{"phase":"Running","startedAt":"2026-01-01T00:00:00Z","operation":{"sync":{"manifests":["evil"]}}}},` +
					`"operation":{"info":[{"name":"argocd-agent.argoproj-labs.io\u002fintent","value":"chosen"}],` +
					`"sync":{"manifests":["evil"],"prune":true,"source":{"repoURL":"https://evil.example.com"}}}}`
				var shown *unstructured.Unstructured
				require.Eventually(t, func() bool { // the principal may not have seen the Application yet
					s.fromManaged.putAs(t, facets.Status, "lie-intent", uid, lie)
					shown = get(t, s.lab.Hub, selection)
					return shown.Object["status"] != nil
				}, timeout, 10*time.Millisecond)
				operation, err := json.Marshal(shown.Object["operation"])
				require.NoError(t, err)
				for _, evil := range []string{"agent.argoproj-labs.io/intent", "manifests", "evil", `"sync"`} {
					require.NotContains(t, string(operation), evil)
				}
			},
		},
		{
			who: agent, about: "application-status", sends: "a key twice in one object",
			happens: "refused",
			try: func(t *testing.T, s *stage) {
				t.Helper()
				selection, uid := define(t, s, "lie-twice")
				requireRefused(t, s.fromManaged.putAs(t, facets.Status, "lie-twice", uid,
					`{"status":{"sync":{"status":"Synced"},"sync":{"status":"OutOfSync"}}}`))
				require.NotContains(t, get(t, s.lab.Hub, selection).Object, "operation")
			},
		},
		{
			who: agent, about: "application-status", sends: "statuses of another agent's Applications, and of those that there are not",
			happens: "nothing is written",
			try: func(t *testing.T, s *stage) {
				t.Helper()
				create(t, s.lab.Hub, `{"apiVersion":"argoproj.io/v1alpha1","kind":"Application","metadata":{"name":"hers","namespace":"`+bystander+`"},`+specText+`}`)
				hers := cluster.Selection{Resource: apps(), Namespace: bystander, Name: "hers"}
				uid := string(get(t, s.lab.Hub, hers).GetUID())
				for _, key := range []converge.Key{"hers", bystander + "/hers", "../" + bystander + "/hers"} {
					requireRefusedOrDone(t, s.fromManaged.putAs(t, facets.Status, key, uid, `{"status":{"sync":{"status":"Synced"}}}`))
				}
				sync, _, err := nestedString(get(t, s.lab.Hub, hers), "status", "sync", "status")
				require.NoError(t, err)
				require.NotEqual(t, "Synced", sync)
				requireStays(t, get(t, s.lab.Hub, hers))
			},
		},
		{
			who: agent, about: "application-status", sends: "a deletion of a status of the hub's Application",
			happens: "the Application stays",
			try: func(t *testing.T, s *stage) {
				t.Helper()
				selection, uid := define(t, s, "lie-remove")
				requireRefusedOrDone(t, s.fromManaged.remove(t, facets.Status, "lie-remove", uid))
				requireRefused(t, s.fromManaged.remove(t, facets.Application, "lie-remove", uid))
				requireStays(t, get(t, s.lab.Hub, selection))
			},
		},
		{
			who: agent, about: "application-status", sends: "a payload of 3 MB, and one of two million empty arrays",
			happens: "refused: the payload is too large, before it is decoded",
			try: func(t *testing.T, s *stage) {
				t.Helper()
				selection, uid := define(t, s, "lie-large")
				for _, large := range []string{`"` + strings.Repeat("x", 3<<20) + `"`, `[` + strings.Repeat("[],", 700_000) + `[]]`} {
					requireRefused(t, s.fromManaged.putAs(t, facets.Status, "lie-large", uid, `{"status":{"x":`+large+`}}`))
				}
				require.NotNil(t, get(t, s.lab.Hub, selection))
			},
		},
	}
}
