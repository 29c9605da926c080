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

// refusalTest is a hub with one application and its facets.
type refusalTest struct {
	*testing.T

	server      *apiServer
	application facets.ApplicationSource
	intent      facets.IntentSource
	status      facets.StatusReplica
}

func newRefusalTest(t *testing.T) *refusalTest {
	t.Helper()
	server := newAPIServer(t)
	hub := server.hub(t)
	d := &refusalTest{t, server, facets.ApplicationSource{Side: hub}, facets.IntentSource{Side: hub}, facets.NewStatusReplica(hub)}
	d.writeOnHub(onHub())
	return d
}

func (d *refusalTest) writeOnHub(a argocd.Application) {
	d.Helper()
	record(d.T, d.application.Applications, d.server.put(a))
}

// requestSync requests a sync and a refresh, whose IDs are assigned at once.
func (d *refusalTest) requestSync(name string) {
	d.Helper()
	a := *d.server.get("guestbook")
	operation, err := argocd.WithInfo(json.RawMessage(`{"sync":{}}`), argocd.InfoIntent, name)
	require.NoError(d, err)
	a.Operation = operation
	a.Annotations = map[string]string{argocd.AnnotationRefresh: "normal/" + name}
	d.writeOnHub(a)
}

// reportFinished reports from the spoke that the intent of that ID has ended.
func (d *refusalTest) reportFinished(name string) {
	d.Helper()
	payload := `{"finished":{"operation":"` + name + `","refresh":"` + name + `"},"status":{"health":{"status":"` + name + `"}}}`
	_, err := d.status.Apply(d.Context(), "guestbook", converge.Object{State: converge.State{UID: "on-hub"}, Payload: []byte(payload)})
	require.NoError(d, err)
}

func (d *refusalTest) reportResult(source converge.Source, r converge.Result) {
	d.Helper()
	require.NoError(d, source.ReportResult(d.Context(), "guestbook", r))
}

// requireConditions checks the messages of the agent's conditions.
func (d *refusalTest) requireConditions(reasons ...string) {
	d.Helper()
	var status struct {
		Conditions []argocd.Condition `json:"conditions"`
	}
	a := d.server.get("guestbook")
	if len(a.Status) > 0 {
		require.NoError(d, json.Unmarshal(a.Status, &status))
	}
	var got []string
	for _, c := range status.Conditions {
		if c.Type == argocd.ConditionHealth {
			continue
		}
		require.Equal(d, argocd.ConditionAgent, c.Type)
		_, reason, ok := strings.Cut(c.Message, ": ")
		require.True(d, ok, c.Message)
		got = append(got, reason)
	}
	require.ElementsMatch(d, reasons, got)
}

func refusal(reason string) converge.Result {
	return converge.Result{Code: converge.Refused, Reason: reason}
}

func done() converge.Result { return converge.Result{Code: converge.Done} }

// A condition of one facet is cleared by the same facet, never by another.
func TestRefusedConditionsOfFacetsAreIndependent(t *testing.T) {
	t.Parallel()
	d := newRefusalTest(t)
	d.reportResult(d.application, refusal("too red"))
	d.requireConditions("too red")
	require.True(t, d.application.HasRefusedCondition("guestbook"))

	d.requestSync("first")
	d.reportResult(d.intent, refusal("not today"))
	d.requireConditions("too red", "not today")
	require.Nil(t, d.server.get("guestbook").Operation)
	require.Empty(t, d.server.get("guestbook").Annotations)
	d.reportResult(d.intent, done()) // the spoke has forgotten what was withdrawn
	d.requireConditions("too red", "not today")

	d.reportResult(d.application, done())
	d.requireConditions("not today")
	require.False(t, d.application.HasRefusedCondition("guestbook"))
	d.reportResult(d.application, refusal("too blue"))
	d.reportResult(d.application, refusal("too green"))
	d.requireConditions("not today", "too green")

	d.requestSync("second")
	d.reportResult(d.intent, done())
	d.requireConditions("too green")
	require.True(t, d.application.HasRefusedCondition("guestbook"))
	require.False(t, d.intent.HasRefusedCondition("guestbook"))
	require.False(t, facets.StatusSource{Side: newAPIServer(t).spoke(t)}.HasRefusedCondition("guestbook"))
	d.reportResult(d.application, done())
	d.requireConditions()
	d.server.takeWrites()
	d.reportResult(d.application, done())
	d.reportResult(d.intent, done())
	require.Empty(t, d.server.takeWrites(), "nothing is left to withdraw")
}

// requireHealth checks the application's health on the hub.
func (d *refusalTest) requireHealth(status, message string) {
	d.Helper()
	var got struct {
		Health struct{ Status, Message string }
	}
	if raw := d.server.get("guestbook").Status; len(raw) > 0 {
		require.NoError(d, json.Unmarshal(raw, &got))
	}
	require.Equal(d, status, got.Health.Status)
	require.Equal(d, message, got.Health.Message)
}

// reportStatus reports a status from the spoke, and checks that the hub holds it.
func (d *refusalTest) reportStatus(status string) {
	d.Helper()
	want := argocd.ReadStatus(json.RawMessage(status))
	_, err := d.status.Apply(d.Context(), "guestbook",
		converge.Object{State: converge.State{UID: "on-hub"}, Payload: []byte(`{"status":` + status + `}`)})
	require.NoError(d, err)
	d.requireHeld(want)
}

// requireHeld checks that the hub holds that status of the spoke's.
func (d *refusalTest) requireHeld(want argocd.Status) {
	d.Helper()
	app, ok := d.application.Store.Get(types.NamespacedName{Namespace: "berlin", Name: "guestbook"})
	require.True(d, ok)
	require.Equal(d, want.Version, app.Status.Version)
}

// Whoever looks at health alone must see that what the hub wants is not what runs. When that is over, the spoke's own health is
// shown at once, whatever it has become meanwhile and whether or not the spoke says it again.
func TestRefusedApplicationIsDegraded(t *testing.T) {
	t.Parallel()
	const (
		healthy     = `{"health":{"lastTransitionTime":"2026-01-01T12:00:00Z","status":"Healthy"},"sync":{"status":"Synced"}}`
		progressing = `{"health":{"message":"\u003ctwo\u003e \u0026 more","status":"Progressing"},"sync":{"status":"Synced"}}`
		healthless  = `{"sync":{"status":"Synced"}}`
		tooRed      = "The spoke refuses this application: too red"
		notToday    = "The spoke refuses what was asked for: not today"
	)
	d := newRefusalTest(t)
	d.reportStatus(healthy)
	d.reportResult(d.application, refusal("too red"))
	d.requireHealth("Degraded", tooRed)
	d.requireHeld(argocd.ReadStatus(json.RawMessage(healthy)))
	d.reportStatus(progressing)
	d.requireHealth("Degraded", tooRed)
	d.server.takeWrites()
	d.reportResult(d.application, refusal("too red"))
	d.reportStatus(progressing)
	require.Empty(t, d.server.takeWrites(), "it is shown already")

	d.requestSync("first")
	d.reportResult(d.intent, refusal("not today"))
	d.requireHealth("Degraded", tooRed)
	d.server.takeWrites()
	d.reportResult(d.application, done())
	d.requireHealth("Degraded", notToday)
	require.Len(t, d.server.takeWrites(), 1, "conditions and health are one write")
	d.requestSync("second")
	d.reportResult(d.intent, done())
	require.JSONEq(t, progressing, string(d.server.get("guestbook").Status))

	d.reportResult(d.application, converge.Result{Code: converge.Retry, Reason: "conflict"})
	d.requireHealth("Progressing", "<two> & more")
	d.reportResult(d.application, refusal("too red"))
	d.reportStatus(healthless)
	d.requireHealth("Degraded", tooRed)
	d.reportResult(d.application, done())
	require.JSONEq(t, healthless, string(d.server.get("guestbook").Status))
}

func TestRefusedApplicationIsDegradedBeforeAnythingRuns(t *testing.T) {
	t.Parallel()
	d := newRefusalTest(t)
	d.reportResult(d.application, refusal("too red"))
	d.requireHealth("Degraded", "The spoke refuses this application: too red")
	d.requireHeld(argocd.Status{})
	d.reportResult(d.application, done())
	d.requireHealth("", "")
	d.requireConditions()
}

// What somebody else writes is corrected: by the spoke's status, or when the refusal is said again.
func TestRefusalIsShownOverForeignHealth(t *testing.T) {
	t.Parallel()
	const healthy = `{"health":{"status":"Healthy"}}`
	d := newRefusalTest(t)
	d.reportStatus(healthy)
	a := *d.server.get("guestbook") // as a principal of an earlier version left it
	a.Status = json.RawMessage(`{"conditions":[{"type":"AgentError","message":"The spoke refuses this application: too red"}],"health":{"status":"Healthy"}}`)
	d.writeOnHub(a)
	d.requireHeld(argocd.ReadStatus(json.RawMessage(healthy)))
	d.reportResult(d.application, refusal("too red"))
	d.requireHealth("Degraded", "The spoke refuses this application: too red")

	a = *d.server.get("guestbook")
	a.Status = json.RawMessage(strings.Replace(string(a.Status), `"status":"Degraded"`, `"status":"Missing"`, 1))
	d.writeOnHub(a)
	d.reportStatus(healthy)
	d.requireHealth("Degraded", "The spoke refuses this application: too red")
	d.reportResult(d.application, done())
	require.JSONEq(t, healthy, string(d.server.get("guestbook").Status))
}

// Where the application comes from the spoke, its health is its own controller's.
func TestHubsRefusalLeavesHealthOnSpoke(t *testing.T) {
	t.Parallel()
	server := newAPIServer(t)
	source := facets.ApplicationSource{Side: server.spoke(t)}
	a := onSpoke()
	a.Status = json.RawMessage(`{"health":{"status":"Healthy"}}`)
	record(t, source.Applications, server.put(a))
	require.NoError(t, source.ReportResult(t.Context(), "guestbook", refusal("too red")))
	status := string(server.get("guestbook").Status)
	require.Contains(t, status, "too red")
	require.Contains(t, status, `"health":{"status":"Healthy"}`)
	require.NotContains(t, status, argocd.ConditionHealth)
}

// A sync may be over before the hub knows that it was taken.
func TestFinishedIntentClearsRefusedCondition(t *testing.T) {
	t.Parallel()
	d := newRefusalTest(t)
	d.reportResult(d.application, refusal("too red"))
	d.requestSync("first")
	d.reportResult(d.intent, refusal("not today"))
	d.requestSync("second")
	d.reportFinished("another")
	d.requireConditions("too red", "not today")
	d.reportFinished("second")
	d.requireConditions("too red")
	require.Nil(t, d.server.get("guestbook").Operation)
	d.reportResult(d.intent, done())
	d.requireConditions("too red")

	d.requestSync("third")
	d.reportResult(d.intent, refusal("not today"))
	a := *d.server.get("guestbook")
	a.Annotations = map[string]string{argocd.AnnotationRefresh: "hard/fourth"}
	d.writeOnHub(a)
	d.reportFinished("fourth")
	d.requireConditions("too red")
}

func TestFinishedTerminationClearsRefusedCondition(t *testing.T) {
	t.Parallel()
	d := newRefusalTest(t)
	a := onHub()
	a.Status = json.RawMessage(`{"operationState":{"phase":"Terminating","startedAt":"2026-01-01T12:00:00Z"}}`)
	d.writeOnHub(a)
	d.reportResult(d.intent, refusal("let it run"))
	says := func(phase string) {
		payload := `{"status":{"operationState":{"phase":"` + phase + `","startedAt":"2026-01-01T12:00:00Z"}}}`
		_, err := d.status.Apply(t.Context(), "guestbook", converge.Object{State: converge.State{UID: "on-hub"}, Payload: []byte(payload)})
		require.NoError(t, err)
	}
	says("Running")
	d.requireConditions("let it run")
	says("Failed")
	d.requireConditions()
}

// An agent of another kind may have left a condition of this type.
func TestUnknownConditionCountsAsTheApplications(t *testing.T) {
	t.Parallel()
	d := newRefusalTest(t)
	a := onHub()
	a.Status = json.RawMessage(`{"conditions":[{"type":"AgentError","message":"unknown: old"}]}`)
	d.writeOnHub(a)
	require.True(t, d.application.HasRefusedCondition("guestbook"))
	d.requestSync("first")
	d.reportResult(d.intent, done())
	d.requireConditions("old")
	d.reportResult(d.application, done())
	d.requireConditions()
}

func TestLongReasonIsTruncated(t *testing.T) {
	t.Parallel()
	for name, reason := range map[string]string{
		"letters": strings.Repeat("x", 1<<20), "wide": strings.Repeat("é€😀", 1000), "shifted": "x" + strings.Repeat("é€😀", 1000),
		"no text": strings.Repeat("\xff\xc3", 2000), "short, no text": "\xf0\x9f\x98",
	} {
		d := newRefusalTest(t)
		for _, c := range []struct {
			source       converge.Source
			hasCondition bool
		}{{d.application, true}, {d.intent, false}} {
			source, hasCondition := c.source, c.hasCondition
			d.requestSync("something")
			d.reportResult(source, refusal(reason))
			app, ok := d.application.Store.Get(types.NamespacedName{Namespace: "berlin", Name: "guestbook"})
			require.True(t, ok)
			require.NotEmpty(t, app.Status.AgentConditions)
			message := app.Status.AgentConditions[len(app.Status.AgentConditions)-1].Message
			require.True(t, utf8.ValidString(message), name)
			require.LessOrEqual(t, len(message), 1024, name)
			if len(reason) > 1024 && utf8.ValidString(reason) {
				require.Greater(t, len(message), 1000, name)
			}
			if hasCondition {
				d.server.takeWrites()
				d.reportResult(source, refusal(reason))
				require.Empty(t, d.server.takeWrites(), "it is set already")
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
		server.deny(&metav1.Status{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure,
			Code: code, Reason: reason, Message: `admission webhook "cake.example.com" denied the request: no cake`,
		})
		hub := newAPIServer(t)
		source := facets.ApplicationSource{Side: hub.hub(t)}
		record(t, source.Applications, hub.put(onHub()))
		object, _ := source.Project("guestbook")
		_, err := replica.Apply(t.Context(), "guestbook", object)
		require.ErrorIs(t, err, converge.ErrRefused, "create, %s", reason)
		require.ErrorContains(t, err, "no cake")

		record(t, replica.Applications, server.put(onSpoke()))
		_, err = replica.Apply(t.Context(), "guestbook", object)
		require.ErrorIs(t, err, converge.ErrRefused, "patch, %s", reason)
		_, err = replica.Apply(t.Context(), "guestbook", deletion(t))
		require.ErrorIs(t, err, converge.ErrRefused, "delete, %s", reason)
		require.NotZero(t, replica.Held("guestbook"), reason)
	}
}

// A retry sets a condition of its own, which replaces that of a refusal.
func TestRetriedApplicationHasCondition(t *testing.T) {
	t.Parallel()
	d := newRefusalTest(t)
	d.reportResult(d.application, refusal("too red"))
	d.reportResult(d.application, converge.Result{Code: converge.Retry, Reason: "nobody is at home"})
	d.requireConditions("nobody is at home")
	require.Contains(t, string(d.server.get("guestbook").Status), "could not take this application yet")
	require.True(t, d.application.HasRefusedCondition("guestbook"))
	d.reportResult(d.application, done())
	d.requireConditions()
	d.reportResult(d.intent, converge.Result{Code: converge.Retry, Reason: "another operation is in progress"})
	d.requireConditions()
}

// The API server refuses a patch that does not fit the newest revision. That is no reason to give up: the condition is set.
func TestConditionIsWrittenToNewestRevision(t *testing.T) {
	t.Parallel()
	d := newRefusalTest(t)
	d.reportResult(d.application, refusal("too red"))
	d.server.put(onHub()) // somebody takes the condition away, and nobody has heard of it yet
	d.reportResult(d.application, refusal("too blue"))
	d.requireConditions("too blue")
	d.server.put(onHub())
	d.reportResult(d.application, done())
	d.requireConditions()
}
