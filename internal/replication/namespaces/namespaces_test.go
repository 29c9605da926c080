package namespaces_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typed "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/converge"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/namespaces"
)

func TestNamespaceList(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		patterns  []string
		in, notIn []string
	}{
		{nil, nil, []string{"", "a"}},
		{[]string{"*"}, []string{"a", "kube-system"}, nil},
		{[]string{"team-*", "x"}, []string{"team-a", "team-", "x"}, []string{"team", "xy", "a-team-b"}},
		{[]string{"{a,b}-?"}, []string{"a-1", "b-2"}, []string{"a-", "c-1", "a-12"}},
		{[]string{"/^team-[0-9]+$/"}, []string{"team-7"}, []string{"team-a", "my-team-7"}},
		{[]string{"/team/"}, []string{"team", "my-team-7"}, []string{"tea"}},
		{[]string{"//", "/"}, nil, []string{"", "a", "b-c"}}, // of no length, which matches everything, it is none
		{[]string{""}, nil, []string{"a"}},
		{[]string{"/^(?!prod-)/"}, []string{"team-a", "prod"}, []string{"prod-a"}},
	} {
		list, err := namespaces.Parse(c.patterns)
		require.NoError(t, err)
		require.NoError(t, namespaces.Check(c.patterns))
		for _, namespace := range c.in {
			require.True(t, list.Has(namespace), "%q in %q", namespace, c.patterns)
		}
		for _, namespace := range c.notIn {
			require.False(t, list.Has(namespace), "%q in %q", namespace, c.patterns)
		}
	}
}

// An expression that backtracks without end matches nothing.
func TestRegularExpressionTimesOut(t *testing.T) {
	t.Parallel()
	list, err := namespaces.Parse([]string{"/^(a+)+$/", "b*"})
	require.NoError(t, err)
	require.False(t, list.Has(strings.Repeat("a", 60)+"!"))
	require.True(t, list.Has("b"))
	list, err = namespaces.Parse([]string{"/^(a+)+$/", "*"})
	require.NoError(t, err)
	require.False(t, list.Has(strings.Repeat("a", 60)+"!"), "the time is for all of a list")
}

func TestBadPatternIsNamedInError(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{"[", "/(/"} {
		_, err := namespaces.Parse([]string{"fine", bad})
		require.ErrorContains(t, err, bad+": ")
		require.ErrorContains(t, namespaces.Check([]string{bad}), "want globs or /regular expressions/: "+bad+": ")
	}
}

func TestLongRegularExpressionIsRefused(t *testing.T) {
	t.Parallel()
	require.NoError(t, namespaces.Check([]string{"/" + strings.Repeat("a", 4096) + "/"}))
	require.ErrorContains(t, namespaces.Check([]string{"/" + strings.Repeat("a", 4097) + "/"}), "want a regular expression of at most 4096 bytes")
}

// creating returns a creator on an API server that has one answer to a creation, and which namespaces it was to create.
func creating(t *testing.T, ready bool, code int, reason metav1.StatusReason) (namespaces.Creator, *[]corev1.Namespace) {
	t.Helper()
	var asked []corev1.Namespace
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if ready && r.URL.Path == "/readyz" {
			return
		}
		var namespace corev1.Namespace
		if r.Method != http.MethodPost || r.URL.Path != "/api/v1/namespaces" || json.NewDecoder(r.Body).Decode(&namespace) != nil {
			http.NotFound(w, r)
			return
		}
		asked = append(asked, namespace)
		var answer any = namespace
		if code >= http.StatusBadRequest {
			answer = metav1.Status{
				TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure,
				Code: int32(code), Reason: reason, Message: "the API server says why",
			}
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(answer) // to a client that has hung up, if it does not work
	}))
	t.Cleanup(server.Close)
	client, err := typed.NewForConfig(&rest.Config{Host: server.URL, ContentConfig: rest.ContentConfig{ContentType: "application/json"}})
	require.NoError(t, err)
	return namespaces.Creator{
		Client: client, Labels: map[string]string{"made-by": "us"},
		Allowed: func(namespace string) bool { return namespace != "forbidden" }, Hint: "create it yourself",
	}, &asked
}

func TestNamespaceIsCreatedWithLabels(t *testing.T) {
	t.Parallel()
	creator, asked := creating(t, true, http.StatusCreated, "")
	require.NoError(t, creator.Create(t.Context(), "berlin"))
	require.Len(t, *asked, 1)
	require.Equal(t, "berlin", (*asked)[0].Name)
	require.Equal(t, map[string]string{"made-by": "us"}, (*asked)[0].Labels)
}

func TestNamespaceNotAllowedIsNotCreated(t *testing.T) {
	t.Parallel()
	creator, asked := creating(t, true, http.StatusCreated, "")
	err := creator.Create(t.Context(), "forbidden")
	require.ErrorIs(t, err, converge.ErrRefused)
	require.ErrorContains(t, err, "create it yourself")
	require.Empty(t, *asked)
}

func TestNamespaceCreationErrors(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		ready   bool
		code    int
		reason  metav1.StatusReason
		fails   bool
		forGood bool
	}{
		{true, http.StatusConflict, metav1.StatusReasonAlreadyExists, false, false},
		{true, http.StatusForbidden, metav1.StatusReasonForbidden, true, true},
		{false, http.StatusForbidden, metav1.StatusReasonForbidden, true, false}, // it forbids nearly everything until it is ready
		{true, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, true, true},
		{true, http.StatusInternalServerError, metav1.StatusReasonInternalError, true, false},
	} {
		creator, _ := creating(t, c.ready, c.code, c.reason)
		err := creator.Create(t.Context(), "berlin")
		if !c.fails {
			require.NoError(t, err, c.reason)
			continue
		}
		require.ErrorContains(t, err, "create it: the API server says why")
		if c.forGood {
			require.ErrorIs(t, err, converge.ErrRefused, c.reason)
		} else {
			require.NotErrorIs(t, err, converge.ErrRefused, c.reason)
		}
	}
}

// A proxy's 409 does not mean that there is such a namespace.
func TestProxyErrorOnNamespaceCreationIsRetried(t *testing.T) {
	t.Parallel()
	for _, code := range []int{http.StatusConflict, http.StatusForbidden, http.StatusNotFound} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/readyz" {
				http.Error(w, "not here", code)
			}
		}))
		t.Cleanup(server.Close)
		client, err := typed.NewForConfig(&rest.Config{Host: server.URL})
		require.NoError(t, err)
		err = namespaces.Creator{Client: client, Allowed: func(string) bool { return true }}.Create(t.Context(), "berlin")
		require.Error(t, err, code)
		require.NotErrorIs(t, err, converge.ErrRefused, code)
	}
}
