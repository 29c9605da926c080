package facets

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/strictjson"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/argocd"
)

// report has a hub's application show what an agent reports, and returns whether it does.
func report(hub *object, agent string, payload []byte) bool {
	var want statusPayload
	if strictjson.Unmarshal(payload, &want) != nil {
		return false
	}
	patch, err := statusReplica{Side: Side{agent: agent, isSource: true}}.show(hub.app(), want)
	if err != nil {
		return false
	}
	hub.apply(patch)
	return true
}

// requireNoIntent checks that a hub's application has no operation that the principal would send, or that a controller could run.
func requireNoIntent(t *testing.T, hub *object) {
	t.Helper()
	var stored struct {
		Operation map[string]any
		Status    struct {
			OperationState struct{ Operation map[string]any }
		}
	}
	require.NoError(t, json.Unmarshal([]byte(hub.doc), &stored))
	for _, operation := range []map[string]any{stored.Operation, stored.Status.OperationState.Operation} {
		sync, _ := operation["sync"].(map[string]any)
		for field := range sync {
			require.Contains(t, []string{"revision", "revisions"}, field)
		}
		list, _ := operation["info"].([]any)
		for _, item := range list {
			if name, _ := item.(map[string]any)["name"].(string); strings.HasPrefix(name, "argocd-agent.argoproj-labs.io/") {
				require.Equal(t, argocd.InfoMirror, name)
			}
		}
	}
	require.NotContains(t, stored.Operation, "sync")
	app := hub.app()
	for _, agent := range []string{"berlin", "paris", ""} {
		require.NotContains(t, string(intentsOf(app, agent)), `"operation"`)
		named := withIntentIDs(app, agent, "id")
		require.Nil(t, named, "what an agent reports is given no ID")
	}
}

// evil is what one agent would have run on another's spoke.
const evil = `"sync":{"manifests":["evil"],"prune":true,"source":{"repoURL":"https://evil"},"sources":[{"repoURL":"https://evil"}]}`

// lies are statuses by which an agent would have an operation of its own taken for a person's.
func lies() []string {
	operations := []string{
		`{` + evil + `}`,
		`{"info":[{"name":"argocd-agent.argoproj-labs.io\u002fintent","value":"chosen"}],` + evil + `}`,
		`{"info":[{"name":"argocd-agent.argoproj-labs.io/intent","value":"paris/chosen"}],` + evil + `}`,
		`{"info":[{"name":"argocd-agent.argoproj-labs.io/mirror","value":"x"},{"name":"argocd-agent.argoproj-labs.io/intent","value":"chosen"}],` + evil + `}`,
		`{"Info":[{"Name":"argocd-agent.argoproj-labs.io/intent","Value":"chosen"}],` + evil + `}`,
		`{"info":[],"info":[{"name":"x","name":"argocd-agent.argoproj-labs.io/intent","value":"chosen"}],` + evil + `}`,
		`{"info":{"name":"argocd-agent.argoproj-labs.io/intent"},"retry":{"limit":-1,"refresh":true},` + evil + `}`,
	}
	var all []string
	for _, o := range operations {
		all = append(all, `{"operation":`+o+`}`, `{"Operation":`+o+`}`)
		for _, phase := range []string{"Running", "Terminating", "Succeeded", "Odd"} {
			state := `{"phase":"` + phase + `","startedAt":"2026-01-01T12:00:00Z","operation":` + o + `,"syncResult":{"revision":"abc"}}`
			all = append(all, `{"operation":`+o+`,"status":{"history":[{"id":1,"source":{"repoURL":"https://evil"}}],"operationState":`+state+`}}`)
		}
	}
	return all
}

func TestReportedOperationsAreNeverIntents(t *testing.T) {
	t.Parallel()
	for _, lie := range lies() {
		hub := newObject(t, "hub-uid", `{}`)
		report(hub, "berlin", []byte(lie)) // or it is refused
		requireNoIntent(t, hub)
		// Nor is it once it has been reported again, or another after it.
		report(hub, "berlin", []byte(lie))
		report(hub, "berlin", []byte(lies()[1]))
		requireNoIntent(t, hub)
	}
	hub := newObject(t, "hub-uid", `{}`)
	for _, broken := range []string{`{"operation":["evil"]}`, `{"status":["evil"]}`, `{"status":{"operationState":{"operation":"evil"}}}`} {
		require.False(t, report(hub, "berlin", []byte(broken)), broken)
	}
}

// What an agent reported of its operations leaves with it, whoever has the application next.
func TestReportedOperationsLeaveWithTheAgent(t *testing.T) {
	t.Parallel()
	for _, lie := range lies() {
		for _, next := range []string{"paris", ""} {
			hub := newObject(t, "hub-uid", `{}`)
			report(hub, "berlin", []byte(lie))
			require.Nil(t, withoutOthers(hub.app(), "berlin"), "it is still that agent's")
			hub.apply(withoutOthers(hub.app(), next))
			require.NotContains(t, hub.doc, "evil")
			require.NotContains(t, hub.doc, `"operation`, "neither operation nor operationState")
			require.NotContains(t, hub.doc, `"history"`)
			require.Nil(t, withoutOthers(hub.app(), next))
		}
	}
}

// What a person asked for goes along, unless it may be of what the old agent wrote into the history.
func TestPendingIntentsLeaveAsTheirContentAllows(t *testing.T) {
	t.Parallel()
	ask := func(sync string) *object {
		hub := newObject(t, "hub-uid", `{}`)
		hub.merge(`{"operation":{"initiatedBy":{"username":"admin"},"sync":` + sync + `}}`)
		hub.apply(withIntentIDs(hub.app(), "berlin", "one"))
		require.NotEmpty(t, intentsOf(hub.app(), "berlin"))
		require.Empty(t, intentsOf(hub.app(), "paris"), "it was asked of another agent")
		return hub
	}
	for _, sync := range []string{`{"source":{"repoURL":"https://evil"},"revision":"abc"}`, `{"sources":[{"repoURL":"https://evil"}]}`, `{"manifests":["evil"]}`} {
		for _, next := range []string{"paris", ""} {
			rollback := ask(sync)
			require.Nil(t, withoutOthers(rollback.app(), "berlin"))
			rollback.apply(withoutOthers(rollback.app(), next))
			require.NotContains(t, rollback.doc, "operation")
		}
	}
	plain := ask(`{"revision":"abc","prune":true}`)
	plain.apply(withoutOthers(plain.app(), "paris"))
	require.Nil(t, withoutOthers(plain.app(), "paris"))
	require.Empty(t, intentsOf(plain.app(), "berlin"), "it has no ID")
	plain.apply(withIntentIDs(plain.app(), "paris", "two"))
	require.JSONEq(t, `{"initiatedBy":{"username":"admin"},"info":[{"name":"argocd-agent.argoproj-labs.io/intent","value":"paris/two"}],"sync":{"revision":"abc","prune":true}}`,
		string(plain.app().Operation))
	require.NotEmpty(t, intentsOf(plain.app(), "paris"))
}

// FuzzReportedOperations has an agent report anything at all. No intent is on the hub after it, and nothing that a controller
// could run; and nothing of it is left when the application is another's.
func FuzzReportedOperations(f *testing.F) {
	for _, lie := range lies() {
		f.Add([]byte(lie))
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		hub := newObject(t, "hub-uid", `{}`)
		if !report(hub, "berlin", payload) {
			return
		}
		requireNoIntent(t, hub)
		hub.apply(withoutOthers(hub.app(), "paris"))
		app := hub.app()
		require.Nil(t, app.Operation)
		require.Empty(t, app.Status.ShownFor())
	})
}
