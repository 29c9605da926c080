package facets_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/converge"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/facets"
)

func TestRefusedStatusIsReportedOnBothSides(t *testing.T) {
	p := newPair(t, facets.Managed)
	record(t, p.hub.Applications, p.hubAPI.put(onHub()))
	app := onSpoke("one")
	app.Status = []byte(`{"health":{"status":"Healthy"}}`)
	record(t, p.spoke.Applications, p.spokeAPI.put(app))

	status := metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	denied := &metav1.Status{
		TypeMeta: status, Status: metav1.StatusFailure, Code: http.StatusForbidden, Reason: "MadeUpByTheWebhook",
		Message: `admission webhook "status.example.com" denied the request: too green`,
	}
	p.hubAPI.deny(denied)
	err := p.send(facets.Status, "guestbook")
	require.ErrorIs(t, err, converge.ErrRefused)
	require.Equal(t, []reported{{"berlin", "Application", "guestbook", converge.Result{Reason: err.Error()}}}, p.reports)
	require.Contains(t, err.Error(), "too green")
	require.Equal(t, []string{"application-status AdmissionWebhook"}, p.failed)

	refused := converge.Result{Code: converge.Refused, Reason: err.Error()}
	source := p.there.Sources[facets.Status]
	require.NoError(t, source.ReportResult(t.Context(), "guestbook", refused))
	require.Equal(t, reported{"", "Application", "guestbook", refused}, p.reports[1])
	require.NoError(t, source.ReportResult(t.Context(), "guestbook", converge.Result{Code: converge.Done}))
	require.NoError(t, source.ReportResult(t.Context(), "gone", refused))
	require.Len(t, p.reports, 2)

	// What may pass is counted, and not reported.
	p.reports = nil
	p.hubAPI.deny(&metav1.Status{
		TypeMeta: status, Status: metav1.StatusFailure, Code: http.StatusServiceUnavailable, Reason: metav1.StatusReasonServiceUnavailable,
	})
	require.Error(t, p.send(facets.Status, "guestbook"))
	p.hubAPI.Close()
	require.Error(t, p.send(facets.Status, "guestbook"))
	require.Empty(t, p.reports)
	require.Equal(t, []string{"application-status ServiceUnavailable", "application-status Other"}, p.failed[1:])
}
