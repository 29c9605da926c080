package apihttp_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/apihttp"
)

func TestErrorsAreKubernetesStatuses(t *testing.T) {
	t.Parallel()
	for code, reason := range map[int]metav1.StatusReason{
		400: metav1.StatusReasonBadRequest, 401: metav1.StatusReasonUnauthorized, 403: metav1.StatusReasonForbidden,
		404: metav1.StatusReasonNotFound, 405: metav1.StatusReasonMethodNotAllowed, 408: metav1.StatusReasonTimeout,
		413: metav1.StatusReasonRequestEntityTooLarge, 429: metav1.StatusReasonTooManyRequests, 500: "", 502: "BadGateway",
		503: metav1.StatusReasonServiceUnavailable, 504: metav1.StatusReasonTimeout,
	} {
		failure := apihttp.Errorf(code, "%s", "why")
		failure.Details = &metav1.StatusDetails{Name: "p"}
		response := httptest.NewRecorder()
		apihttp.WriteError(response, failure)
		require.Equal(t, code, response.Code)
		require.Equal(t, http.Header{
			"Content-Type": {"application/json"}, "Cache-Control": {"no-cache, private"}, "Content-Length": response.Header()["Content-Length"],
		}, response.Header())
		var status metav1.Status
		require.NoError(t, json.Unmarshal(response.Body.Bytes(), &status))
		require.Equal(t, metav1.Status{
			TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Message: "why", Reason: reason,
			Details: &metav1.StatusDetails{Name: "p"}, Code: int32(code),
		}, status)
	}
}
