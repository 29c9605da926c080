package argocd_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/argocd"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/converge"
)

// evilSync is what a sync may bring along.
const evilSync = `{"manifests":["evil"],"sources":[{"repoURL":"https://evil"}],"source":{"repoURL":"https://evil"},"prune":true,` +
	`"resources":[{"kind":"Pod"}],"revision":"abc","revisions":["abc","def"],"syncStrategy":{"hook":{"force":true}}}`

// What is shown of an operation says who began it, and has nothing that a controller could run.
func TestOperationsAreShownWithoutWhatCouldBeRun(t *testing.T) {
	for operation, want := range map[string]string{
		`{"initiatedBy":{"username":"admin","automated":true,"more":1},"retry":{"limit":5},"sync":` + evilSync + `}`:                                        `{"initiatedBy":{"username":"admin","automated":true},"info":[MINE]}`,
		`{"info":[{"name":"Reason","value":"release"},{"name":"argocd-agent.argoproj-labs.io\u002fintent","value":"evil"}],"sync":{}}`:                      `{"info":[{"name":"Reason","value":"release"},MINE]}`,
		`{"info":[{"name":"argocd-agent.argoproj-labs.io/mirror","value":"evil"}],"INFO":[{"name":"argocd-agent.argoproj-labs.io/intent","value":"evil"}]}`: `{"info":[MINE]}`,
		`{"info":[],"info":[{"Name":"argocd-agent.argoproj-labs.io/intent","name":"argocd-agent.argoproj-labs.io/intent","value":"evil"}],"sync":null}`:     `{"info":[MINE]}`,
		`{"info":"argocd-agent.argoproj-labs.io/intent","initiatedBy":[],"sync":[]}`:                                                                        `{"info":[MINE]}`,
		`{"info":[{"name":["argocd-agent.argoproj-labs.io/intent"]},7],"initiatedBy":{"username":["a"],"automated":"yes"},"Sync":{"manifests":["evil"]}}`:   `{"info":[MINE],"initiatedBy":{}}`,
	} {
		got, err := argocd.DisplayOperation(json.RawMessage(operation), "berlin/one")
		require.NoError(t, err, operation)
		mine := `{"name":"argocd-agent.argoproj-labs.io/mirror","value":"berlin/one"}`
		require.JSONEq(t, strings.ReplaceAll(want, "MINE", mine), string(got), operation)
		require.Equal(t, "berlin/one", argocd.OperationInfo(got, argocd.InfoMirror))
		require.Empty(t, argocd.OperationInfo(got, argocd.InfoIntent))
	}
	_, err := argocd.DisplayOperation(json.RawMessage(`["evil"]`), "berlin/one")
	require.Error(t, err)
}

// A status that is shown has the name of its agent in the operation's state, and neither intents nor what could be resumed.
func TestStatusIsShownAsAnAgents(t *testing.T) {
	state := func(phase, info, sync string) string {
		return `{"history":[{"id":1}],"operationState":{"message":"m","operation":{"info":[` + info + `]` + sync + `},"phase":"` + phase + `","syncResult":{"revision":"abc"}}}`
	}
	const intent = `{"name":"argocd-agent.argoproj-labs.io\u002fintent","value":"berlin/one"}`
	const berlins = `{"name":"argocd-agent.argoproj-labs.io/mirror","value":"berlin"}`
	for phase, sync := range map[string]string{
		"Running": "", "Terminating": "", "made-up": "",
		"Succeeded": `,"sync":{"revision":"abc","revisions":["abc","def"]}`, "Failed": `,"sync":{"revision":"abc","revisions":["abc","def"]}`,
	} {
		reported := kept(state(phase, intent, `,"sync":`+evilSync))
		raw, err := reported.Raw()
		require.NoError(t, err)
		onHub, err := argocd.DisplayStatus(raw, "berlin")
		require.NoError(t, err)
		require.JSONEq(t, state(phase, berlins, sync), string(onHub))
		shown := argocd.ReadStatus(onHub)
		require.Equal(t, "berlin", shown.ShownFor())
		require.Equal(t, reported.Version, shown.Version, "both sides know it by the same")
		require.Equal(t, reported.Version, shown.VersionOf("berlin"))
		require.NotEqual(t, reported.Version, shown.VersionOf("paris"))
		again, err := argocd.DisplayStatus(onHub, "berlin")
		require.NoError(t, err)
		require.Equal(t, string(onHub), string(again))
		// What others write into it, or has not been made a display copy, is no agent's.
		for _, changed := range []string{
			state(phase, berlins, `,"sync":`+evilSync), state(phase, intent+","+berlins, sync), state(phase, "", sync), state(phase, intent, sync),
		} {
			require.NotEqual(t, reported.Version, argocd.ReadStatus(json.RawMessage(changed)).VersionOf("berlin"), changed)
		}
	}
}

func TestHistoryWithoutOperationIsNotShown(t *testing.T) {
	for status, want := range map[string]string{
		`{"health":{},"history":[{"id":1}]}`:                            `{"health":{}}`,
		`{"health":{},"history":[{"id":1}],"operationState":null}`:      `{"health":{}}`,
		`{"health":{},"history":[],"operationState":{}}`:                `{"health":{}}`,
		`{"history":[{"id":1}]}`:                                        `{}`,
		`{"health": {}}`:                                                `{"health": {}}`,
		`null`:                                                          `null`,
		`{"operationState":null,"history":[{"id":1}],"history":[]}`:     `{}`,
		`{"operationState":{"phase":"Running"},"history":[{"id":"x"}]}`: `{"history":[{"id":"x"}],"operationState":{"operation":{"info":[{"name":"argocd-agent.argoproj-labs.io/mirror","value":"berlin"}]},"phase":"Running"}}`,
	} {
		got, err := argocd.DisplayStatus(json.RawMessage(status), "berlin")
		require.NoError(t, err, status)
		require.JSONEq(t, want, string(got))
	}
	for _, status := range []string{`[]`, `"x"`, `{"operationState":[]}`, `{"operationState":{"operation":[]}}`} {
		_, err := argocd.DisplayStatus(json.RawMessage(status), "berlin")
		require.Error(t, err, status)
	}
	require.NotEqual(t, converge.Version{}, argocd.ReadStatus(json.RawMessage(`{"history":[{"id":1}]}`)).VersionOf("berlin"))
}

func TestOperationsThatBringContent(t *testing.T) {
	for operation, brings := range map[string]bool{
		`{"sync":{"source":{"repoURL":"x"}}}`: true, `{"sync":{"sources":[{}]}}`: true, `{"sync":{"manifests":["x"]}}`: true, `[]`: true,
		`{"sync":{"revision":"abc","prune":true}}`: false, `{}`: false, `{"sync":{"source":null}}`: false,
	} {
		require.Equal(t, brings, argocd.BringsContent(json.RawMessage(operation)), operation)
	}
}
