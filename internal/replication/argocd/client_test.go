package argocd_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/argocd"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/converge"
)

// answering returns a client of an API server that has one answer for everything, but for whether it is ready.
func answering(t *testing.T, ready bool, status metav1.Status) *argocd.Client[*argocd.Application] {
	t.Helper()
	status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	status.Status = metav1.StatusFailure
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if ready && r.URL.Path == "/readyz" {
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(int(status.Code))
		_ = json.NewEncoder(w).Encode(status) // to a client that has hung up, if it does not work
	}))
	t.Cleanup(server.Close)
	client, err := argocd.NewClient(&rest.Config{Host: server.URL}, argocd.Applications(), argocd.Scope{})
	require.NoError(t, err)
	return client
}

// What somebody who may say so denies would be denied again, whatever the code: that is for a webhook to choose. What only
// went wrong is tried again.
func TestErrorThatWouldRecurIsRefused(t *testing.T) {
	t.Parallel()
	const (
		hook   = `admission webhook "cake.example.com" denied the request: no cake`
		silent = `admission webhook "cake.example.com" denied the request without explanation`
		policy = `applications.argoproj.io "a" is forbidden: ValidatingAdmissionPolicy 'cake' with binding 'all' denied request: no cake`
	)
	for name, c := range map[string]struct {
		status            metav1.Status
		refused, conflict bool
	}{
		"denied, bad request": {metav1.Status{Code: 400, Message: hook}, true, false},
		"denied, forbidden":   {metav1.Status{Code: 403, Reason: metav1.StatusReasonForbidden, Message: hook}, true, false},
		"denied, not found":   {metav1.Status{Code: 404, Reason: metav1.StatusReasonNotFound, Message: hook}, true, false},
		"denied, 404":         {metav1.Status{Code: 404, Message: hook}, true, false},
		"denied, conflict":    {metav1.Status{Code: 409, Reason: metav1.StatusReasonConflict, Message: hook}, true, false},
		"denied, exists":      {metav1.Status{Code: 409, Reason: metav1.StatusReasonAlreadyExists, Message: silent}, true, false},
		"denied, 409":         {metav1.Status{Code: 409, Message: silent}, true, false},
		"failed, internal":    {metav1.Status{Code: 500, Reason: metav1.StatusReasonInternalError, Message: hook}, false, false},
		"failed, 503":         {metav1.Status{Code: 503, Message: silent}, false, false},
		"failed, as conflict": {metav1.Status{Code: 500, Reason: metav1.StatusReasonConflict, Message: hook}, false, false},
		"failed, not found":   {metav1.Status{Code: 500, Reason: metav1.StatusReasonNotFound, Message: hook}, false, false},
		"failed, too much":    {metav1.Status{Code: 429, Reason: metav1.StatusReasonTooManyRequests, Message: hook}, false, false},
		"denied by a policy":  {metav1.Status{Code: 401, Reason: metav1.StatusReasonUnauthorized, Message: policy}, true, false},
		"invalid":             {metav1.Status{Code: 422, Reason: metav1.StatusReasonInvalid}, true, false},
		"too large":           {metav1.Status{Code: 500, Message: "etcdserver: request is too large"}, true, false},
		"forbidden":           {metav1.Status{Code: 403, Reason: metav1.StatusReasonForbidden}, true, false},
		"namespace is going": {metav1.Status{
			Code: 403, Reason: metav1.StatusReasonForbidden,
			Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}},
		}, false, false},
		"unauthorized": {metav1.Status{Code: 401, Reason: metav1.StatusReasonUnauthorized}, false, false},
		"conflict":     {metav1.Status{Code: 409, Reason: metav1.StatusReasonConflict}, false, true},
		"exists":       {metav1.Status{Code: 409, Reason: metav1.StatusReasonAlreadyExists}, false, true},
		"webhook is away": {metav1.Status{
			Code: 500, Reason: metav1.StatusReasonInternalError,
			Message: `Internal error occurred: failed calling webhook "cake.example.com": context deadline exceeded`,
		}, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client, id := answering(t, true, c.status), types.NamespacedName{Namespace: "argocd", Name: "a"}
			_, create := client.Create(t.Context(), &argocd.Application{ObjectMeta: metav1.ObjectMeta{Namespace: "argocd", Name: "a"}})
			_, patch := client.Patch(t.Context(), id, "1", nil)
			_, remove := client.Delete(t.Context(), id, "uid", "1")
			for act, err := range map[string]error{"create": create, "patch": patch, "delete": remove} {
				require.Error(t, err, act)
				require.Equal(t, c.conflict, argocd.IsConflict(err), act)
				if c.refused {
					require.ErrorIs(t, err, converge.ErrRefused, act)
				} else {
					require.NotErrorIs(t, err, converge.ErrRefused, act)
				}
			}
		})
	}
}

func TestDeleteOfMissingObjectSucceeds(t *testing.T) {
	t.Parallel()
	client := answering(t, true, metav1.Status{Code: 404, Reason: metav1.StatusReasonNotFound})
	left, err := client.Delete(t.Context(), types.NamespacedName{Namespace: "argocd", Name: "a"}, "uid", "1")
	require.NoError(t, err)
	require.Nil(t, left)
}

// An API server that is starting forbids nearly everything; what an admission webhook denies it has been asked for.
func TestForbiddenByUnreadyAPIServerIsRetried(t *testing.T) {
	t.Parallel()
	for message, refused := range map[string]bool{
		`User "argocd-agent" cannot patch resource "applications"`:         false,
		`applications.argoproj.io "a" is forbidden: not yet ready`:         false,
		`admission webhook "cake.example.com" denied the request: not now`: true,
	} {
		client := answering(t, false, metav1.Status{Code: 403, Reason: metav1.StatusReasonForbidden, Message: message})
		_, err := client.Patch(t.Context(), types.NamespacedName{Namespace: "argocd", Name: "a"}, "1", nil)
		require.ErrorContains(t, err, message)
		require.Equal(t, refused, errors.Is(err, converge.ErrRefused), message)
	}
}

// A proxy before an API server answers in its own words, and by codes that stand for something else.
func TestProxyErrorIsNoAPIServerError(t *testing.T) {
	t.Parallel()
	for code, refused := range map[int]bool{
		http.StatusNotFound: false, http.StatusForbidden: false, http.StatusConflict: false, http.StatusBadRequest: false,
		http.StatusBadGateway: false, http.StatusRequestEntityTooLarge: true,
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/readyz" {
				http.Error(w, "default backend", code)
			}
		}))
		t.Cleanup(server.Close)
		applications, err := argocd.NewClient(&rest.Config{Host: server.URL}, argocd.Applications(), argocd.Scope{})
		require.NoError(t, err)
		secrets, err := argocd.NewClient(&rest.Config{Host: server.URL}, argocd.Secrets(), argocd.Scope{})
		require.NoError(t, err)
		id, meta := types.NamespacedName{Namespace: "argocd", Name: "a"}, metav1.ObjectMeta{Namespace: "argocd", Name: "a"}
		_, get := applications.Get(t.Context(), id)
		_, create := applications.Create(t.Context(), &argocd.Application{ObjectMeta: meta})
		_, patch := applications.Patch(t.Context(), id, "1", nil)
		_, remove := applications.Delete(t.Context(), id, "uid", "1")
		_, secret := secrets.Create(t.Context(), &argocd.Object{ObjectMeta: meta})
		for act, err := range map[string]error{"get": get, "create": create, "patch": patch, "delete": remove, "create a Secret": secret} {
			require.Error(t, err, "%s: %d", act, code)
			require.False(t, argocd.IsConflict(err), "%s: %d", act, code)
			require.Equal(t, refused, errors.Is(err, converge.ErrRefused), "%s: %d", act, code)
		}
		require.NotContains(t, secret.Error(), "API server answered")
	}
}

// Nor is a page of a proxy's, by which all seems well, the end of an object.
func TestDeleteIsDoneOnlyWhenAPIServerConfirms(t *testing.T) {
	t.Parallel()
	for answer, gone := range map[string]bool{
		`{"kind":"Status","apiVersion":"v1","status":"Success"}`:                   true,
		`{"kind":"Application","apiVersion":"argoproj.io/v1alpha1","metadata":{}}`: true,
		`{"kind":"Status","apiVersion":"v1"}`:                                      false,
		`{"message":"be right back"}`:                                              false,
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte(answer)) // to a client that has hung up, if it does not work
		}))
		t.Cleanup(server.Close)
		client, err := argocd.NewClient(&rest.Config{Host: server.URL}, argocd.Applications(), argocd.Scope{})
		require.NoError(t, err)
		_, err = client.Delete(t.Context(), types.NamespacedName{Namespace: "argocd", Name: "a"}, "uid", "1")
		require.Equal(t, gone, err == nil, "%s: %v", answer, err)
	}
}
