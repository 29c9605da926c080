package facets_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/argocd"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/converge"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/facets"
)

// What was taken is remembered when somebody wipes the annotations that say so: nothing runs twice, and what is asked next
// does run.
func TestWhatWasTakenIsRememberedWithoutItsAnnotation(t *testing.T) {
	t.Parallel()
	server := newAPIServer(t)
	replica := facets.NewIntentReplica(server.spoke(t))
	hears(t, replica.Applications, server.put(onSpoke()))
	asked := func(name string) converge.Object {
		payload := []byte(`{"operation":{"info":[{"name":"` + argocd.InfoIntent + `","value":"` + name + `"}]},"operationName":"` + name + `"}`)
		return converge.Object{State: converge.State{UID: "on-hub", Version: converge.VersionOf(payload)}, Payload: payload}
	}
	// runs has the application controller do what is asked, another operation since, and somebody wipe annotations.
	runs := func() {
		a := *server.get("guestbook")
		require.NotNil(t, a.Operation)
		a.Operation = nil
		a.Annotations = map[string]string{argocd.AnnotationSourceUID: "on-hub"}
		a.Status = []byte(`{"operationState":{"phase":"Succeeded","startedAt":"2999-01-01T12:00:00Z","operation":{}}}`)
		hears(t, replica.Applications, server.put(a))
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
