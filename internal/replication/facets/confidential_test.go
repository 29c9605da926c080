package facets_test

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"log/slog"
	"net/http"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/argocd"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/converge"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/facets"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/syncmetrics"
)

// password is what no log and no error may have.
const password = "correct-horse-battery-staple"

func keepsSecret(t *testing.T, what, text string) {
	t.Helper()
	for _, form := range []string{password, base64.StdEncoding.EncodeToString([]byte(password))} {
		require.NotContains(t, text, form, what)
	}
}

// confidential returns a pair that shares one Secret, and that Secret.
func confidential(t *testing.T) (*pair, argocd.Object) {
	t.Helper()
	p := newPair(t, facets.Managed)
	p.onHub("AppProject", teamProject("team", "berlin"))
	secret := aSecret("repo", "repository", "team")
	secret.Data["password"] = base64.StdEncoding.EncodeToString([]byte(password))
	p.onHub("Secret", secret)
	return p, secret
}

// Whatever an API server or a webhook says of a Secret, the spoke's answer and so the logs of both sides say nothing of what is
// in it.
func TestNoErrorQuotesASecret(t *testing.T) {
	t.Parallel()
	quote := func(code int32, reason metav1.StatusReason, format string) func(*apiServer) {
		return func(s *apiServer) {
			s.deny(&metav1.Status{
				TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: code, Reason: reason,
				Message: fmt.Sprintf(format, base64.StdEncoding.EncodeToString([]byte(password))+" "+password),
				Details: &metav1.StatusDetails{Name: password, Kind: password, Causes: []metav1.StatusCause{{Field: password, Message: password}}},
			})
		}
	}
	for name, c := range map[string]struct {
		deny    func(*apiServer)
		refused bool
		says    string
	}{
		"all of it":          {func(s *apiServer) { s.quotes = true }, true, "the API server answered 422 Unprocessable Entity; its words are withheld"},
		"bad request":        {quote(http.StatusBadRequest, metav1.StatusReasonBadRequest, "cannot decode %q"), true, "the API server answered 400 Bad Request"},
		"by a webhook":       {quote(http.StatusForbidden, metav1.StatusReasonForbidden, `admission webhook "cake.example.com" denied the request: %s`), true, `the admission webhook "cake.example.com" answered 403 Forbidden`},
		"a webhook's code":   {quote(http.StatusConflict, metav1.StatusReasonConflict, `admission webhook "cake.example.com" denied the request: %s`), true, `the admission webhook "cake.example.com" answered 409 Conflict`},
		"by a policy":        {quote(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, `ValidatingAdmissionPolicy 'x' with binding 'y' denied request: %s`), true, "answered 422"},
		"internal":           {quote(http.StatusInternalServerError, metav1.StatusReasonInternalError, "%s"), false, "the API server answered 500 Internal Server Error"},
		"a webhook's reason": {quote(http.StatusTeapot, password, `%s`), false, "the API server answered 418"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, secret := confidential(t)
			c.deny(p.spokeAPI)
			replica := p.there.Replicas[facets.Repository]
			var log bytes.Buffer
			observer := syncmetrics.NewSync("test", prometheus.NewRegistry(), 1).Observer("berlin", slog.New(slog.NewJSONHandler(&log, nil)))
			check := func(err error) {
				t.Helper()
				require.ErrorContains(t, err, c.says)
				if c.refused {
					require.ErrorIs(t, err, converge.ErrRefused)
				} else {
					require.NotErrorIs(t, err, converge.ErrRefused)
				}
				observer.Repaired(facets.Repository, "repo", converge.Result{Code: converge.Refused, Reason: err.Error()})
				keepsSecret(t, "error", fmt.Sprintf("%v %+v", err, err))
				keepsSecret(t, "log", log.String())
			}
			check(p.send(facets.Repository, "repo")) // a creation
			there := secret
			there.Annotations = map[string]string{argocd.AnnotationSourceUID: "hub-repo"}
			there.Data = map[string]string{"password": "eA=="}
			p.onSpoke("Secret", there)
			check(p.send(facets.Repository, "repo")) // a patch
			_, err := replica.Remove(t.Context(), "repo", "")
			check(err)
			require.NoError(t, p.here.Sources[facets.Repository].ReportResult(t.Context(), "repo", converge.Result{Code: converge.Refused, Reason: err.Error()}))
			keepsSecret(t, "what is reported", fmt.Sprintf("%+v", p.reports))
		})
	}
}

// What a hub sends that makes no sense is not quoted either.
func TestNoErrorQuotesAPayload(t *testing.T) {
	t.Parallel()
	p, _ := confidential(t)
	for _, payload := range []string{password, `"` + password + `"`, `{"data":"` + password + `"}`, `{"data":{"password":["` + password + `"]}}`, `{"` + password + `":`} {
		for f, replica := range p.there.Replicas {
			_, err := replica.Apply(t.Context(), "repo", converge.Object{State: converge.State{UID: "x"}, Payload: []byte(payload)})
			if f == facets.Repository {
				require.ErrorIs(t, err, converge.ErrRefused, payload)
			}
			keepsSecret(t, string(f), fmt.Sprint(err))
		}
	}
}

// Objects, records, contents and messages show nothing of what is in them, however they are logged.
func TestSecretsAreRedactedInLogs(t *testing.T) {
	t.Parallel()
	p, secret := confidential(t)
	object, ok := p.here.Sources[facets.Repository].Project("repo")
	require.True(t, ok)
	require.Contains(t, string(object.Payload), base64.StdEncoding.EncodeToString([]byte(password)), "otherwise this tests nothing")
	record := recordObject(t, p.hub.Cluster, p.hubAPI.object("Secret", "repo"))
	for name, value := range map[string]any{
		"object": &secret, "event": watch.Event{Type: watch.Added, Object: &secret}, "record": record, "content": record.Content(),
		"payload": object, "put": converge.Put{Facet: facets.Repository, Key: "repo", Seq: 1, Object: object},
	} {
		var log bytes.Buffer
		slog.New(slog.NewTextHandler(&log, nil)).Error("x", "value", value)
		if name != "event" { // which nobody logs by itself
			slog.New(slog.NewJSONHandler(&log, nil)).Error("x", "value", value)
		}
		keepsSecret(t, name, log.String())
		keepsSecret(t, name, fmt.Sprintf("%v %+v %s", value, value, value))
	}
}
