package facets

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/argocd"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/converge"
)

const taking = "2026-01-01T12:00:30Z"

// spokes returns a spoke's application that has taken an operation, called ours, when an operation that began at a time is
// the one that its status tells of.
func spokes(operation, started, ran string) *argocd.App {
	status := fmt.Sprintf(`{"operationState":{"phase":"Succeeded","startedAt":%q,"operation":{"info":[{"name":%q,"value":%q}]}}}`,
		started, argocd.InfoIntent, ran)
	if started == "" {
		status = ""
	}
	note, _ := json.Marshal(taken{Version: converge.VersionOf([]byte("intent")).String(), Operation: "ours", At: taking})
	return argocd.Reduce(true)(&argocd.Application{
		ObjectMeta: metav1.ObjectMeta{Name: "guestbook", Annotations: map[string]string{
			argocd.AnnotationSourceUID: "uid", argocd.AnnotationIntent: string(note),
		}},
		Operation: json.RawMessage(operation), Status: json.RawMessage(status),
	}, nil)
}

func pendingOperation(name string) string {
	return fmt.Sprintf(`{"info":[{"name":%q,"value":%q}],"sync":{}}`, argocd.InfoIntent, name)
}

func TestOperationIsReportedOverOnce(t *testing.T) {
	for name, c := range map[string]struct {
		app        *argocd.App
		over, lost bool
	}{
		"it waits":                                   {spokes(pendingOperation("ours"), "", ""), false, false},
		"it waits, after another":                    {spokes(pendingOperation("ours"), "2026-01-01T11:00:00Z", "other"), false, false},
		"it ran":                                     {spokes("", "2026-01-01T12:00:31Z", "ours"), true, false},
		"it ran at once":                             {spokes("", taking, "ours"), true, false},
		"it ran, and another since":                  {spokes("", "2026-01-01T12:01:00Z", "other"), true, false},
		"it ran, and another in the same second":     {spokes("", taking, "other"), true, false},
		"it ran, and another waits":                  {spokes(pendingOperation("other"), "2026-01-01T12:00:31Z", "ours"), true, false},
		"it was taken away by one that began before": {spokes("", "2026-01-01T12:00:29Z", "other"), false, true},
		"it is gone, and nobody knows why":           {spokes("", "", ""), true, false},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, c.over, finishedOf(c.app).Operation == "ours")
			require.Equal(t, c.lost, neverStarted(c.app, takenBy(c.app)))
			require.Equal(t, c.lost, intentReplica{}.takenState(c.app) == converge.State{}, "what is lost is not held, and so sent again")
		})
	}
}

func TestOperationThatNeverStartedIsRetried(t *testing.T) {
	in := intents{Operation: json.RawMessage(pendingOperation("ours")), OperationName: "ours"}
	version := converge.VersionOf([]byte("intent"))
	patch, err := takes(spokes("", "2026-01-01T12:00:31Z", "other"), in, version)
	require.NoError(t, err)
	require.Nil(t, patch)

	began := time.Now().Add(-time.Second)
	patch, err = takes(spokes("", "2026-01-01T12:00:29Z", "other"), in, version)
	require.NoError(t, err)
	require.Len(t, patch, 2)
	require.Equal(t, "/operation", patch[0].Path)
	var next taken
	require.NoError(t, json.Unmarshal([]byte(patch[1].Value.(map[string]string)[argocd.AnnotationIntent]), &next))
	at, err := time.Parse(time.RFC3339, next.At)
	require.NoError(t, err)
	require.True(t, at.After(began.Add(-time.Second)))
}

// takes is take for an application that nobody has taken a note away from.
func takes(app *argocd.App, in intents, version converge.Version) (argocd.Patch, error) {
	return take(app, takenBy(app), "", in, version)
}
