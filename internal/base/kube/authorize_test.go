package kube_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/kube"
)

// Who scrapes metrics is who the API server says it is, and may do so if that says so.
func TestMetricsAreForWhomTheAPIServerAllows(t *testing.T) {
	t.Parallel()
	var failure error
	reviews := 0
	client := fake.NewClientset()
	client.PrependReactor("create", "tokenreviews", func(a clienttesting.Action) (bool, runtime.Object, error) {
		reviews++
		review := a.(clienttesting.CreateAction).GetObject().(*authenticationv1.TokenReview)
		review.Status.Authenticated = review.Spec.Token != "forged"
		review.Status.User.Username = review.Spec.Token + "'s owner"
		return true, review, failure
	})
	client.PrependReactor("create", "subjectaccessreviews", func(a clienttesting.Action) (bool, runtime.Object, error) {
		review := a.(clienttesting.CreateAction).GetObject().(*authorizationv1.SubjectAccessReview)
		asked := review.Spec.NonResourceAttributes
		review.Status.Allowed = review.Spec.User == "good's owner" && asked.Verb == "get" && asked.Path == "/metrics"
		return true, review, nil
	})
	handler := kube.Authorize(client)(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("metrics")) }))
	get := func(path, authorization string) (int, string) {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody)
		r.Header.Set("Authorization", authorization)
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		return w.Code, w.Body.String()
	}
	for range 3 {
		code, body := get("/metrics", "Bearer good")
		require.Equal(t, http.StatusOK, code)
		require.Equal(t, "metrics", body)
	}
	require.Equal(t, 1, reviews, "the API server is not asked at each scrape")
	for authorization, want := range map[string]int{
		"": http.StatusUnauthorized, "Basic Z29vZA==": http.StatusUnauthorized, "Bearer ": http.StatusUnauthorized,
		"Bearer forged": http.StatusUnauthorized, "Bearer other": http.StatusForbidden,
	} {
		code, body := get("/metrics", authorization)
		require.Equal(t, want, code, authorization)
		require.NotContains(t, body, "forged")
	}
	code, body := get("/other", "Bearer good")
	require.Equal(t, http.StatusForbidden, code)
	require.Contains(t, body, "good's owner may not get /other")
	failure = errors.New("etcd is away")
	code, _ = get("/metrics", "Bearer new")
	require.Equal(t, http.StatusServiceUnavailable, code, "that is no refusal")
	failure = nil
	code, _ = get("/metrics", "Bearer new")
	require.Equal(t, http.StatusForbidden, code)
}
