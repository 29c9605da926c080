package argocd_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/argocd"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/converge"
)

// kept returns what the side that owns a status keeps of it.
func kept(status string) argocd.Status {
	return argocd.Reduce(true)(&argocd.Application{Status: json.RawMessage(status)}, nil).Status
}

const running = `{"sync":{"status":"Synced"},"operationState":{"phase":"Running","startedAt":"2026-01-01T12:00:00Z",` +
	`"operation":{"info":[{"name":"argocd-agent.argoproj-labs.io/intent","value":"mine"}]}}}`

func TestStatusIsKeptAsItCame(t *testing.T) {
	for _, status := range []string{running, `{"a": [1,  2]}`} {
		s := kept(status)
		raw, err := s.Raw()
		require.NoError(t, err)
		require.Equal(t, status, string(raw))
		display, err := s.Display()
		require.NoError(t, err)
		require.Equal(t, converge.VersionOf(display), s.Version)
		// The other side knows the version alone.
		other := argocd.ReadStatus(json.RawMessage(status))
		raw, err = other.Raw()
		require.NoError(t, err)
		require.Nil(t, raw)
		require.Equal(t, s.Version, other.Version)
	}
	s := kept(running)
	require.Equal(t, "Running", s.Phase)
	require.Equal(t, "2026-01-01T12:00:00Z", s.StartedAt)
	require.Equal(t, "mine", s.RanIntent)
}

func TestEmptyStatusHasZeroVersion(t *testing.T) {
	for _, status := range []string{"", "null", "{}"} {
		require.Equal(t, argocd.Status{}, kept(status), status)
	}
}

// The agent's own conditions are no part of the status that both sides have.
func TestAgentConditionsAreNoPartOfStatusVersion(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	first, second := argocd.AgentCondition("first", now), argocd.AgentCondition("second", now)
	for _, status := range []string{
		"", `{}`, `{"health":{}}`, `{"conditions":[]}`, `{"conditions":[{"type":"Other","message":"m"}],"health":{}}`,
	} {
		plain := kept(status)
		require.Empty(t, plain.AgentConditions)

		document := patched(t, status, plain, first)
		withCondition := kept(document)
		require.Equal(t, []argocd.Condition{first}, withCondition.AgentConditions, document)
		require.Equal(t, "2026-01-02T03:04:05Z", withCondition.AgentConditions[0].LastTransitionTime)
		if status == `{"health":{}}` {
			require.Equal(t, plain.Version, withCondition.Version)
		}
		require.Equal(t, document, patched(t, document, withCondition, first), "nothing to do")

		document = patched(t, document, withCondition, first, second)
		both := kept(document)
		require.Equal(t, []argocd.Condition{first, second}, both.AgentConditions)
		require.Equal(t, withCondition.Version, both.Version)
		raw, err := argocd.WithAgentConditions(json.RawMessage(`{"health":{}}`), both.AgentConditions)
		require.NoError(t, err)
		require.Equal(t, both.AgentConditions, kept(string(raw)).AgentConditions)

		document = patched(t, document, both, second)
		rest := kept(document)
		require.Equal(t, []argocd.Condition{second}, rest.AgentConditions)

		document = patched(t, document, kept(document), first)
		require.Equal(t, []argocd.Condition{first}, kept(document).AgentConditions)
		document = patched(t, document, kept(document))
		require.Empty(t, kept(document).AgentConditions, document)
		if status == `{"conditions":[{"type":"Other","message":"m"}],"health":{}}` {
			require.JSONEq(t, status, document)
		}
	}
}

// What a peer keeps in such a condition is one value of the status that it sends, and would be many once it stands in it.
func TestOnlyAHealthIsGivenBack(t *testing.T) {
	for kept, want := range map[string]string{
		`{"status":"Healthy","message":"m"}`: `{"health":{"status":"Healthy","message":"m"}}`,
		`null`:                               `{}`,
		`{"status":["Healthy"]}`:             `{"health":{"status":"Degraded"}}`,
		`"Healthy"`:                          `{"health":{"status":"Degraded"}}`,
		`{"x":[` + strings.Repeat("{},", 1000) + `{}]}`: `{"health":{"status":"Degraded"}}`,
	} {
		conditions, err := json.Marshal([]argocd.Condition{{Type: argocd.ConditionHealth, Message: kept}})
		require.NoError(t, err)
		status := `{"conditions":` + string(conditions) + `,"health":{"status":"Degraded"}}`
		require.JSONEq(t, want, string(argocd.WithoutAgentConditions(json.RawMessage(status))), kept)
	}
}

// What would not be given back is not kept either: it would be kept anew with every write.
func TestOnlyAHealthIsKept(t *testing.T) {
	refused := argocd.AgentCondition(argocd.RefusedIntent+"no", time.Now())
	raw, err := argocd.WithAgentConditions(json.RawMessage(`{"health":{"x":[`+strings.Repeat("1,", 100)+`1]}}`), []argocd.Condition{refused})
	require.NoError(t, err)
	require.JSONEq(t, `{}`, string(argocd.WithoutAgentConditions(raw)))
}

// Somebody else's conditions may stand between the agent's.
func TestAgentConditionsAmongOtherConditions(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	status := `{"conditions":[{"type":"AgentError","message":"a"},{"type":"Other","message":"m"},{"type":"AgentError","message":"b"}]}`
	require.JSONEq(t, `{"conditions":[{"type":"Other","message":"m"}]}`, patched(t, status, kept(status)))
	require.JSONEq(t, `{"conditions":[{"type":"Other","message":"m"},
		{"type":"AgentError","message":"c","lastTransitionTime":"2026-01-02T03:04:05Z"}]}`,
		patched(t, status, kept(status), argocd.AgentCondition("c", now)))
}

// patched returns a status in which these are the agent's conditions.
func patched(t *testing.T, status string, s argocd.Status, conditions ...argocd.Condition) string {
	t.Helper()
	patch := argocd.Patch{}
	s.PatchAgentConditions(&patch, conditions)
	body, err := json.Marshal(patch)
	require.NoError(t, err)
	decoded, err := jsonpatch.DecodePatch(body)
	require.NoError(t, err)
	document := map[string]json.RawMessage{}
	if status != "" {
		document["status"] = json.RawMessage(status)
	}
	before, err := json.Marshal(document)
	require.NoError(t, err)
	after, err := decoded.Apply(before)
	require.NoError(t, err, "%s on %s", body, before)
	var out struct {
		Status json.RawMessage `json:"status"`
	}
	require.NoError(t, json.Unmarshal(after, &out))
	return string(out.Status)
}
