package facets_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/argocd"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/converge"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/facets"
)

// desk is a hub with one application, and all that there is to say about that.
type desk struct {
	*testing.T

	server      *apiServer
	application facets.ApplicationSource
	intent      facets.IntentSource
	status      facets.StatusReplica
}

func newDesk(t *testing.T) *desk {
	t.Helper()
	server := newAPIServer(t)
	hub := server.hub(t)
	d := &desk{t, server, facets.ApplicationSource{Side: hub}, facets.IntentSource{Side: hub}, facets.NewStatusReplica(hub)}
	d.becomes(onHub())
	return d
}

func (d *desk) becomes(a argocd.Application) {
	d.Helper()
	hears(d.T, d.application.Applications, d.server.put(a))
}

// asks has somebody ask for a sync and a refresh, which get their names at once.
func (d *desk) asks(name string) {
	d.Helper()
	a := *d.server.get("guestbook")
	operation, err := argocd.WithInfo(json.RawMessage(`{"sync":{}}`), argocd.InfoIntent, name)
	require.NoError(d, err)
	a.Operation = operation
	a.Annotations = map[string]string{argocd.AnnotationRefresh: "normal/" + name}
	d.becomes(a)
}

// isOver has the spoke say that it has done what has a name.
func (d *desk) isOver(name string) {
	d.Helper()
	payload := `{"finished":{"operation":"` + name + `","refresh":"` + name + `"},"status":{"health":{"status":"` + name + `"}}}`
	_, err := d.status.Apply(d.Context(), "guestbook", converge.Object{State: converge.State{UID: "on-hub"}, Payload: []byte(payload)})
	require.NoError(d, err)
}

func (d *desk) settles(source converge.Source, r converge.Result) {
	d.Helper()
	require.NoError(d, source.ReportResult(d.Context(), "guestbook", r))
}

// tells checks which reasons the application tells.
func (d *desk) tells(reasons ...string) {
	d.Helper()
	var status struct {
		Conditions []argocd.Condition `json:"conditions"`
	}
	a := d.server.get("guestbook")
	if len(a.Status) > 0 {
		require.NoError(d, json.Unmarshal(a.Status, &status))
	}
	var told []string
	for _, c := range status.Conditions {
		require.Equal(d, argocd.ConditionAgent, c.Type)
		_, reason, ok := strings.Cut(c.Message, ": ")
		require.True(d, ok, c.Message)
		told = append(told, reason)
	}
	require.ElementsMatch(d, reasons, told)
}

func refusal(reason string) converge.Result {
	return converge.Result{Code: converge.Refused, Reason: reason}
}

func done() converge.Result { return converge.Result{Code: converge.Done} }

// What one facet tells is withdrawn by the same, and stays whatever becomes of the other.
func TestRefusedConditionsOfFacetsAreIndependent(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.settles(d.application, refusal("too red"))
	d.tells("too red")
	require.True(t, d.application.HasRefusedCondition("guestbook"))

	d.asks("first")
	d.settles(d.intent, refusal("not today"))
	d.tells("too red", "not today")
	require.Nil(t, d.server.get("guestbook").Operation)
	require.Empty(t, d.server.get("guestbook").Annotations)
	d.settles(d.intent, done()) // the spoke has forgotten what was withdrawn
	d.tells("too red", "not today")

	d.settles(d.application, done())
	d.tells("not today")
	require.False(t, d.application.HasRefusedCondition("guestbook"))
	d.settles(d.application, refusal("too blue"))
	d.settles(d.application, refusal("too green"))
	d.tells("not today", "too green")

	d.asks("second")
	d.settles(d.intent, done())
	d.tells("too green")
	require.True(t, d.application.HasRefusedCondition("guestbook"))
	require.False(t, d.intent.HasRefusedCondition("guestbook"))
	require.False(t, facets.StatusSource{Side: newAPIServer(t).spoke(t)}.HasRefusedCondition("guestbook"))
	d.settles(d.application, done())
	d.tells()
	d.server.done()
	d.settles(d.application, done())
	d.settles(d.intent, done())
	require.Empty(t, d.server.done(), "nothing is left to withdraw")
}

// A sync may be over before the hub has heard that it was taken.
func TestFinishedIntentClearsRefusedCondition(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.settles(d.application, refusal("too red"))
	d.asks("first")
	d.settles(d.intent, refusal("not today"))
	d.asks("second")
	d.isOver("another")
	d.tells("too red", "not today")
	d.isOver("second")
	d.tells("too red")
	require.Nil(t, d.server.get("guestbook").Operation)
	d.settles(d.intent, done())
	d.tells("too red")

	d.asks("third")
	d.settles(d.intent, refusal("not today"))
	a := *d.server.get("guestbook")
	a.Annotations = map[string]string{argocd.AnnotationRefresh: "hard/fourth"}
	d.becomes(a)
	d.isOver("fourth")
	d.tells("too red")
}

func TestFinishedTerminationClearsRefusedCondition(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	a := onHub()
	a.Status = json.RawMessage(`{"operationState":{"phase":"Terminating","startedAt":"2026-01-01T12:00:00Z"}}`)
	d.becomes(a)
	d.settles(d.intent, refusal("let it run"))
	says := func(phase string) {
		payload := `{"status":{"operationState":{"phase":"` + phase + `","startedAt":"2026-01-01T12:00:00Z"}}}`
		_, err := d.status.Apply(t.Context(), "guestbook", converge.Object{State: converge.State{UID: "on-hub"}, Payload: []byte(payload)})
		require.NoError(t, err)
	}
	says("Running")
	d.tells("let it run")
	says("Failed")
	d.tells()
}

// An agent of another kind may have left a condition of this type.
func TestUnknownConditionCountsAsTheApplications(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	a := onHub()
	a.Status = json.RawMessage(`{"conditions":[{"type":"AgentError","message":"unknown: old"}]}`)
	d.becomes(a)
	require.True(t, d.application.HasRefusedCondition("guestbook"))
	d.asks("first")
	d.settles(d.intent, done())
	d.tells("old")
	d.settles(d.application, done())
	d.tells()
}

func TestLongReasonIsTruncated(t *testing.T) {
	t.Parallel()
	for name, reason := range map[string]string{
		"letters": strings.Repeat("x", 1<<20), "wide": strings.Repeat("é€😀", 1000), "shifted": "x" + strings.Repeat("é€😀", 1000),
		"no text": strings.Repeat("\xff\xc3", 2000), "short, no text": "\xf0\x9f\x98",
	} {
		d := newDesk(t)
		for _, c := range []struct {
			source   converge.Source
			troubled bool
		}{{d.application, true}, {d.intent, false}} {
			source, troubled := c.source, c.troubled
			d.asks("something")
			d.settles(source, refusal(reason))
			app, ok := d.application.Store.Get(types.NamespacedName{Namespace: "berlin", Name: "guestbook"})
			require.True(t, ok)
			require.NotEmpty(t, app.Status.AgentConditions)
			message := app.Status.AgentConditions[len(app.Status.AgentConditions)-1].Message
			require.True(t, utf8.ValidString(message), name)
			require.LessOrEqual(t, len(message), 1024, name)
			if len(reason) > 1024 && utf8.ValidString(reason) {
				require.Greater(t, len(message), 1000, name)
			}
			if troubled {
				d.server.done()
				d.settles(source, refusal(reason))
				require.Empty(t, d.server.done(), "it is told already")
			}
		}
	}
}

// A webhook may deny by any code, even one that stands for a conflict or for an object that is not there.
func TestWebhookDenialIsNotAConflict(t *testing.T) {
	t.Parallel()
	for _, reason := range []metav1.StatusReason{metav1.StatusReasonConflict, metav1.StatusReasonAlreadyExists, metav1.StatusReasonNotFound} {
		code := map[bool]int32{true: http.StatusNotFound, false: http.StatusConflict}[reason == metav1.StatusReasonNotFound]
		server := newAPIServer(t)
		replica := facets.NewApplicationReplica(server.spoke(t), facets.AdoptionPolicy{})
		server.denies(&metav1.Status{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure,
			Code: code, Reason: reason, Message: `admission webhook "cake.example.com" denied the request: no cake`,
		})
		hub := newAPIServer(t)
		source := facets.ApplicationSource{Side: hub.hub(t)}
		hears(t, source.Applications, hub.put(onHub()))
		object, _ := source.Project("guestbook")
		_, err := replica.Apply(t.Context(), "guestbook", object)
		require.ErrorIs(t, err, converge.ErrRefused, "create, %s", reason)
		require.ErrorContains(t, err, "no cake")

		hears(t, replica.Applications, server.put(onSpoke()))
		_, err = replica.Apply(t.Context(), "guestbook", object)
		require.ErrorIs(t, err, converge.ErrRefused, "patch, %s", reason)
		_, err = replica.Apply(t.Context(), "guestbook", deletion(t))
		require.ErrorIs(t, err, converge.ErrRefused, "delete, %s", reason)
		require.NotZero(t, replica.Held("guestbook"), reason)
	}
}

// What is tried again is told too, as something else than a refusal, and takes its place.
func TestRetriedApplicationHasCondition(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.settles(d.application, refusal("too red"))
	d.settles(d.application, converge.Result{Code: converge.Retry, Reason: "nobody is at home"})
	d.tells("nobody is at home")
	require.Contains(t, string(d.server.get("guestbook").Status), "could not take this application yet")
	require.True(t, d.application.HasRefusedCondition("guestbook"))
	d.settles(d.application, done())
	d.tells()
	d.settles(d.intent, converge.Result{Code: converge.Retry, Reason: "another operation is in progress"})
	d.tells()
}

// A patch that does not fit the newest revision is refused by the API server, not for good: what was to be told is told.
func TestConditionIsWrittenToNewestRevision(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.settles(d.application, refusal("too red"))
	d.server.put(onHub()) // somebody takes the condition away, and nobody has heard of it yet
	d.settles(d.application, refusal("too blue"))
	d.tells("too blue")
	d.server.put(onHub())
	d.settles(d.application, done())
	d.tells()
}
