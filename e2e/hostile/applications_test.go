package hostile_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/cluster"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/converge"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/facets"
)

// specText is the spec of an Application that any project permits.
const specText = `"spec":{"project":"default","source":{"repoURL":"https://example.com/x","path":"x"},` +
	`"destination":{"name":"in-cluster","namespace":"x"}}`

// shareProject sends the project of these Applications, without which an agent takes none.
func shareProject(t *testing.T, s *session) {
	t.Helper()
	requireDone(t, s.put(t, facets.AppProject, "default", `{"spec":{"sourceRepos":["*"],"destinations":[{"server":"*","namespace":"*"}]}}`))
}

// applicationLies are a principal's about Applications.
func applicationLies() []lie {
	return []lie{
		{
			who: principal, about: "application", sends: "names that are none, or in another namespace: `../x`, `kube-system/x`, `x%2fy`",
			happens: "refused; nothing is made in any namespace",
			try: func(t *testing.T, s *stage) {
				t.Helper()
				shareProject(t, s.toManaged)
				for _, name := range []converge.Key{"../x", "kube-system/x", "x%2fy", "Lie", ""} {
					requireRefused(t, s.toManaged.put(t, facets.Application, name, `{`+specText+`}`))
				}
				all, err := s.lab.Spoke(managedSpoke).List(t.Context(), cluster.Selection{Resource: apps()})
				require.NoError(t, err)
				for _, app := range all {
					require.Equal(t, "argocd", app.GetNamespace())
				}
			},
		},
		{
			who: principal, about: "application", sends: "finalizers that are not Argo CD's, an owner, an operation and a status",
			happens: "refused, or made without them",
			try: func(t *testing.T, s *stage) {
				t.Helper()
				shareProject(t, s.toManaged)
				ack := s.toManaged.put(t, facets.Application, "lie-more", `{`+specText+`,"finalizers":["example.com/stuck"],`+
					`"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"x","uid":"y"}],`+
					`"operation":{"sync":{"manifests":["evil"]}},"status":{"sync":{"status":"Synced"}}}`)
				made := get(t, s.lab.Spoke(managedSpoke), in(apps(), "lie-more"))
				if ack.Code == converge.Refused {
					require.Nil(t, made)
					return
				}
				requireDone(t, ack)
				require.NotContains(t, made.GetFinalizers(), "example.com/stuck")
				require.Empty(t, made.GetOwnerReferences())
				require.NotContains(t, made.Object, "operation")
				require.NotContains(t, made.Object, "status")
			},
		},
		{
			who: principal, about: "application", sends: "annotations that only the agent writes, such as the record of an intent, or `refresh`",
			happens: "the Application is made without them",
			try: func(t *testing.T, s *stage) {
				t.Helper()
				shareProject(t, s.toManaged)
				ack := s.toManaged.put(t, facets.Application, "lie-annotations", `{`+specText+`,"annotations":{`+
					`"argocd-agent.argoproj-labs.io/intent":"x","argocd.argoproj.io/refresh":"hard","argocd-agent.argoproj-labs.io/agent":"x"}}`)
				made := get(t, s.lab.Spoke(managedSpoke), in(apps(), "lie-annotations"))
				if ack.Code == converge.Refused {
					require.Nil(t, made)
					return
				}
				requireDone(t, ack)
				for _, name := range []string{"argocd-agent.argoproj-labs.io/intent", "argocd.argoproj.io/refresh"} {
					require.NotContains(t, made.GetAnnotations(), name)
				}
				require.Equal(t, managedSpoke, made.GetAnnotations()["argocd-agent.argoproj-labs.io/agent"], "the agent writes its own name")
			},
		},
		{
			who: principal, about: "application", sends: "a deletion of an Application of the spoke's own, of any UID or of its own",
			happens: "the Application stays: only replica objects are deleted",
			try: func(t *testing.T, s *stage) {
				t.Helper()
				spoke := s.lab.Spoke(managedSpoke)
				create(t, spoke, `{"apiVersion":"argoproj.io/v1alpha1","kind":"Application","metadata":{"name":"local"},`+specText+`}`)
				for _, uid := range []string{"", string(get(t, spoke, in(apps(), "local")).GetUID())} {
					requireRefusedOrDone(t, s.toManaged.remove(t, facets.Application, "local", uid))
					requireStays(t, get(t, spoke, in(apps(), "local")))
				}
				ack := s.toManaged.put(t, facets.Application, "local", `{"deleting":true,"finalizers":["resources-finalizer.argocd.argoproj.io"]}`)
				requireRefusedOrDone(t, ack)
				requireStays(t, get(t, spoke, in(apps(), "local")))
			},
		},
		{
			who: principal, about: "application, appproject", sends: "definitions to an autonomous agent",
			happens: "refused: in that mode the spoke is the source",
			try: func(t *testing.T, s *stage) {
				t.Helper()
				requireRefused(t, s.toAutonomous.put(t, facets.Application, "lie", `{`+specText+`}`))
				requireNone(t, s.lab.Spoke(autonomousSpoke), in(apps(), "lie"))
				requireRefused(t, s.toAutonomous.put(t, facets.AppProject, "lie", `{"spec":{}}`))
				requireNone(t, s.lab.Spoke(autonomousSpoke), in(projects(), "lie"))
			},
		},
		{
			who: principal, about: "application-intent", sends: "an intent for an Application that there is not",
			happens: "nothing is made",
			try: func(t *testing.T, s *stage) {
				t.Helper()
				requireNotDone(t, s.toAutonomous.put(t, facets.Intent, "nowhere", `{"operation":{"sync":{}},"operationName":"x"}`))
				requireNone(t, s.lab.Spoke(autonomousSpoke), in(apps(), "nowhere"))
			},
		},
		{
			who: principal, about: "application-status", sends: "a status, of which the spoke is the source",
			happens: "refused",
			try: func(t *testing.T, s *stage) {
				t.Helper()
				requireRefused(t, s.toManaged.put(t, facets.Status, "local", `{"status":{"sync":{"status":"Synced"}}}`))
			},
		},
	}
}

// requireStays checks that an object is there, and is not being deleted.
func requireStays(t *testing.T, object *unstructured.Unstructured) {
	t.Helper()
	require.NotNil(t, object)
	require.Nil(t, object.GetDeletionTimestamp())
}
