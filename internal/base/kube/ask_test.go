package kube_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typed "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/kube"
)

// An API server that is starting forbids what it allows a moment later.
func TestForbiddenIsRetriedOnceAPIServerIsReady(t *testing.T) {
	t.Parallel()
	const allows, forbids, fails, ready = http.StatusOK, http.StatusForbidden, http.StatusInternalServerError, http.StatusOK
	for name, c := range map[string]struct {
		answers   []int // to the request
		readiness int
		forbidden bool
	}{
		"it allows":                       {[]int{allows}, ready, false},
		"it fails":                        {[]int{fails}, ready, false},
		"it forbids, and is ready":        {[]int{forbids, forbids}, ready, true},
		"it forbids, and is not ready":    {[]int{forbids}, fails, false},
		"it forbids to ask whether it is": {[]int{forbids}, forbids, false},
		"it forbade, and is ready by now": {[]int{forbids, allows}, ready, false},
		"it forbade, and fails by now":    {[]int{forbids, fails}, ready, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			left := c.answers
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				code := c.readiness
				if r.URL.Path != "/readyz" {
					code, left = left[0], left[1:]
				}
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(code)
				_, _ = fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","code":%d,"reason":%q}`, code, map[int]metav1.StatusReason{
					forbids: metav1.StatusReasonForbidden, fails: metav1.StatusReasonInternalError,
				}[code])
			}))
			t.Cleanup(server.Close)
			client, err := typed.NewForConfig(&rest.Config{Host: server.URL, ContentConfig: rest.ContentConfig{ContentType: "application/json"}})
			require.NoError(t, err)
			forbidden, err := kube.Ask(t.Context(), client.RESTClient(), func() error {
				return client.RESTClient().Get().AbsPath("/api/v1/namespaces/x").Do(t.Context()).Error()
			})
			require.Equal(t, c.forbidden, forbidden)
			require.Empty(t, left)
			switch c.answers[len(c.answers)-1] {
			case allows:
				require.NoError(t, err)
			case forbids:
				require.True(t, apierrors.IsForbidden(err), err)
			case fails:
				require.True(t, apierrors.IsInternalError(err), err)
			}
		})
	}
}

// A proxy may turn a request away that is none of its business.
func TestForbiddenFromProxyIsNotForbidden(t *testing.T) {
	t.Parallel()
	asked := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/readyz" {
			asked++
			http.Error(w, "not from here", http.StatusForbidden)
		}
	}))
	t.Cleanup(server.Close)
	client, err := typed.NewForConfig(&rest.Config{Host: server.URL})
	require.NoError(t, err)
	forbidden, err := kube.Ask(t.Context(), client.RESTClient(), func() error {
		return client.RESTClient().Get().AbsPath("/api/v1/namespaces/x").Do(t.Context()).Error()
	})
	require.False(t, forbidden)
	require.True(t, kube.IsForeign(err), err)
	require.Equal(t, 1, asked)
}
