package facets_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/converge"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/facets"
)

// An application is another controller's from the moment that it loses its label, and not only once the watch has said so.
func TestApplicationThatLostItsLabelIsIgnored(t *testing.T) {
	t.Parallel()
	selector, err := facets.ParseSelector("argocd-agent=true")
	require.NoError(t, err)
	server := newAPIServer(t)
	hub := facets.SelectedBy(server.hub(t), selector)
	source, status := facets.ApplicationSource{Side: hub}, facets.NewStatusReplica(hub)
	report := converge.Object{State: converge.State{UID: "on-hub"}, Payload: []byte(`{"status":{"health":{"status":"Healthy"}}}`)}

	labelled := onHub("resources-finalizer.argocd.argoproj.io")
	labelled.Labels = map[string]string{"argocd-agent": "true"}
	record(t, hub.Applications, server.put(labelled))
	_, err = status.Apply(t.Context(), "guestbook", report)
	require.NoError(t, err)
	require.Len(t, server.takeWrites(), 1, "while it has it, the status is shown")

	taken := *server.get("guestbook")
	taken.Labels, taken.Status = nil, []byte(`{"health":{"status":"Degraded"}}`)
	taken = deleting(taken)
	server.put(taken)
	_, err = status.Apply(t.Context(), "guestbook", converge.Object{
		State: report.State, Payload: []byte(`{"status":{"health":{"status":"Progressing"}}}`),
	})
	require.NoError(t, err)
	require.NoError(t, source.ReportResult(t.Context(), "guestbook", converge.Result{Code: converge.Done, Absent: true}))
	require.Empty(t, server.takeWrites())
	require.NotEmpty(t, server.get("guestbook").Finalizers, "whose deletion is not over")
}
