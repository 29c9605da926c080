package kube_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/bubble"
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

// Bearer tokens that somebody makes up cost the API server little, and whoever may scrape still may when the answer has to be asked for again.
func TestMadeUpTokensDoNotBusyTheAPIServer(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		reviews := 0
		client := fake.NewClientset()
		client.PrependReactor("create", "tokenreviews", func(a clienttesting.Action) (bool, runtime.Object, error) {
			reviews++
			review := a.(clienttesting.CreateAction).GetObject().(*authenticationv1.TokenReview)
			review.Status.Authenticated = review.Spec.Token == "good"
			return true, review, nil
		})
		client.PrependReactor("create", "subjectaccessreviews", func(a clienttesting.Action) (bool, runtime.Object, error) {
			review := a.(clienttesting.CreateAction).GetObject().(*authorizationv1.SubjectAccessReview)
			review.Status.Allowed = true
			return true, review, nil
		})
		handler := kube.Authorize(client)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		get := func(token string) int {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", http.NoBody)
			r.Header.Set("Authorization", "Bearer "+token)
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, r)
			return w.Code
		}
		require.Equal(t, http.StatusOK, get("good"))
		codes := make(map[int]int)
		for i := range 10_000 {
			codes[get(strconv.Itoa(i))]++
		}
		require.LessOrEqual(t, reviews, 30)
		require.Equal(t, 10_000, codes[http.StatusUnauthorized]+codes[http.StatusTooManyRequests])
		require.NotZero(t, codes[http.StatusUnauthorized], "those that were asked about")
		<-time.After(2 * time.Minute) // what was said of it is not believed any more
		for i := range 100 {
			get("another " + strconv.Itoa(i))
		}
		before := reviews
		require.Equal(t, http.StatusOK, get("good"))
		require.Equal(t, before+1, reviews)
	})
}
