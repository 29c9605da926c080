package argocd_test

import (
	"encoding/json"
	"testing"
	"time"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/argocd"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/converge"
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
		require.Equal(t, converge.VersionOf([]byte(status)), s.Version)
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

func TestStatusThatSaysNothing(t *testing.T) {
	for _, status := range []string{"", "null", "{}"} {
		require.Equal(t, argocd.Status{}, kept(status), status)
	}
}

// The agent's own condition is no part of the status that both sides have.
func TestAgentsConditionIsApart(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, status := range []string{
		"", `{}`, `{"health":{}}`, `{"conditions":[]}`, `{"conditions":[{"type":"Other","message":"m"}],"health":{}}`,
	} {
		plain := kept(status)
		require.Nil(t, plain.Trouble)

		document := patched(t, status, plain, argocd.Trouble("first", now))
		troubled := kept(document)
		require.Equal(t, "first", troubled.Trouble.Message, document)
		require.Equal(t, "2026-01-02T03:04:05Z", troubled.Trouble.LastTransitionTime)
		if status == `{"health":{}}` {
			require.Equal(t, plain.Version, troubled.Version)
		}

		again := troubled
		var none argocd.Patch
		require.False(t, again.PatchTrouble(&none, argocd.Trouble("first", now.Add(time.Hour))), "the same, later")
		require.Empty(t, none)

		document = patched(t, document, troubled, argocd.Trouble("second", now))
		second := kept(document)
		require.Equal(t, "second", second.Trouble.Message)
		require.Equal(t, troubled.Version, second.Version)

		document = patched(t, document, second, nil)
		require.Nil(t, kept(document).Trouble, document)
		require.NotContains(t, document, "second")
		if status == `{"conditions":[{"type":"Other","message":"m"}],"health":{}}` {
			require.JSONEq(t, status, document)
		}
	}
}

// patched returns a status in which c is the agent's condition.
func patched(t *testing.T, status string, s argocd.Status, c *argocd.Condition) string {
	t.Helper()
	var patch argocd.Patch
	require.True(t, s.PatchTrouble(&patch, c))
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
