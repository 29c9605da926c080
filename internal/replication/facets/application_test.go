package facets_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/argocd"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/facets"
)

// What docs/managed-mode.md says of an Application that is on the spoke already, whoever made it.
func TestExistingApplicationIsPatchedInPlace(t *testing.T) {
	t.Parallel()
	for name, source := range map[string]string{"of somebody else": "", "of another on a hub": "another"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			hub := newAPIServer(t)
			wanted := onHub(foreground)
			wanted.Labels = map[string]string{"team": "blue"}
			truth := facets.ApplicationSource{Side: hub.hub(t)}
			record(t, truth.Applications, hub.put(wanted))
			object, _ := truth.Project("guestbook")

			server := newAPIServer(t)
			there := onSpoke(background, "example.com/own")
			there.Spec = json.RawMessage(`{"project":"other"}`)
			there.Status = json.RawMessage(`{"health":{"status":"Healthy"}}`)
			there.Operation = json.RawMessage(`{"sync":{}}`)
			there.Labels = map[string]string{"mine": "yes"}
			there.OwnerReferences = []metav1.OwnerReference{{Name: "owner"}}
			there.Annotations = map[string]string{"mine": "yes", argocd.AnnotationRefresh: "hard"}
			if source != "" {
				there.Annotations[argocd.AnnotationSourceUID] = source
			}
			replica := facets.NewApplicationReplica(server.spoke(t), facets.AdoptionPolicy{Mismatch: facets.MismatchUpsert})
			record(t, replica.Applications, server.put(there))
			held, err := replica.Apply(t.Context(), "guestbook", object)
			require.NoError(t, err)
			require.Equal(t, object.State, held)
			require.Len(t, server.takeWrites(), 1)

			is := server.get("guestbook")
			require.Equal(t, there.UID, is.UID)
			require.JSONEq(t, `{"destination":{"name":"in-cluster"},"project":"default"}`, string(is.Spec))
			require.JSONEq(t, string(there.Status), string(is.Status))
			require.JSONEq(t, string(there.Operation), string(is.Operation))
			require.Equal(t, there.OwnerReferences, is.OwnerReferences)
			require.Equal(t, wanted.Labels, is.Labels)
			require.Equal(t, []string{"example.com/own", foreground}, is.Finalizers)
			require.Equal(t, map[string]string{
				argocd.AnnotationRefresh: "hard", argocd.AnnotationSourceUID: "on-hub",
				argocd.AnnotationApplied: object.Version.String(),
			}, is.Annotations)

			held, err = replica.Apply(t.Context(), "guestbook", object)
			require.NoError(t, err)
			require.Equal(t, object.State, held)
			require.Empty(t, server.takeWrites(), "what is held is not written again")
		})
	}
}
