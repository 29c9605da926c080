package facets_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/argocd"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/converge"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/facets"
)

// asked is an operation of that name that the hub asks for.
func asked(name string) converge.Object {
	payload := []byte(`{"operation":{"info":[{"name":"` + argocd.InfoIntent + `","value":"` + name + `"}]},"operationName":"` + name + `"}`)
	return converge.Object{State: converge.State{UID: "on-hub", Version: converge.VersionOf(payload)}, Payload: payload}
}

// What was taken is remembered when somebody wipes the annotations that say so: nothing runs twice, and what is asked next
// does run.
func TestIntentIsNotTakenTwiceWithoutAnnotation(t *testing.T) {
	t.Parallel()
	server := newAPIServer(t)
	replica := facets.NewIntentReplica(server.spoke(t))
	record(t, replica.Applications, server.put(onSpoke()))
	// runs has the application controller do what is asked, another operation since, and somebody wipe annotations.
	runs := func() {
		a := *server.get("guestbook")
		require.NotNil(t, a.Operation)
		a.Operation = nil
		a.Annotations = map[string]string{argocd.AnnotationSourceUID: "on-hub"}
		a.Status = []byte(`{"operationState":{"phase":"Succeeded","startedAt":"2999-01-01T12:00:00Z","operation":{}}}`)
		record(t, replica.Applications, server.put(a))
	}
	_, err := replica.Apply(t.Context(), "guestbook", asked("first"))
	require.NoError(t, err)
	runs()
	_, err = replica.Apply(t.Context(), "guestbook", asked("first"))
	require.NoError(t, err)
	require.Nil(t, server.get("guestbook").Operation)
	require.Contains(t, server.get("guestbook").Annotations[argocd.AnnotationIntent], "first")

	_, err = replica.Apply(t.Context(), "guestbook", asked("second"))
	require.NoError(t, err)
	runs()
	_, err = replica.Remove(t.Context(), "guestbook", "on-hub") // the hub withdraws it
	require.NoError(t, err)
	_, err = replica.Apply(t.Context(), "guestbook", asked("third"))
	require.NoError(t, err)
	require.Contains(t, string(server.get("guestbook").Operation), "third")
}

// An application that is deleted behind our back while its operation runs is created again without a note of that. The
// controller, which knows it by its name, ends the operation on the new one; another may follow before the hub hears of it.
func TestOperationDoesNotRunAgainOnRecreatedApplication(t *testing.T) {
	t.Parallel()
	server := newAPIServer(t)
	replica := facets.NewIntentReplica(server.spoke(t))
	record(t, replica.Applications, server.put(onSpoke()))
	_, err := replica.Apply(t.Context(), "guestbook", asked("first"))
	require.NoError(t, err)
	running := *server.get("guestbook")
	running.Status = []byte(`{"operationState":{"phase":"Running","startedAt":"2999-01-01T12:00:00Z","operation":` + string(running.Operation) + `}}`)
	record(t, replica.Applications, server.put(running))
	app, known := replica.Store.Get(types.NamespacedName{Namespace: running.Namespace, Name: running.Name})
	require.True(t, known)
	facets.Saw(replica, "guestbook", app)

	again := onSpoke()
	again.UID = "on-spoke-again"
	again.Status = []byte(`{"operationState":{"phase":"Succeeded","startedAt":"2999-01-01T12:00:04Z","operation":{}}}`)
	record(t, replica.Applications, server.put(again))
	_, err = replica.Apply(t.Context(), "guestbook", asked("first"))
	require.NoError(t, err)
	require.Nil(t, server.get("guestbook").Operation, "it began before")
	_, err = replica.Apply(t.Context(), "guestbook", asked("second"))
	require.NoError(t, err)
	require.Contains(t, string(server.get("guestbook").Operation), "second")
}
