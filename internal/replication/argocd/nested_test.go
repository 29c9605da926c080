package argocd_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/argocd"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/converge"
)

// resources are two, of a kind and a namespace each.
func resources(kind, namespace string) string {
	return `{"resources":[{"group":"argoproj.io","kind":"` + kind + `","name":"child","namespace":"` + namespace + `"},` +
		`{"group":"","kind":"ConfigMap","name":"config","namespace":"argocd"}]}`
}

// The applications of one namespace have the other side's, wherever they are named among resources, and nothing else has.
func TestNestedApplicationsChangeNamespace(t *testing.T) {
	move := argocd.Move{From: "argocd", To: "berlin"}
	status := func(of string) string {
		return `{"operationState":{"operation":{},"syncResult":` + of + `},` + strings.TrimPrefix(of, "{")
	}
	for name, c := range map[string]struct{ on, shown string }{
		"a child":                     {resources("Application", "argocd"), resources("Application", "berlin")},
		"of another namespace":        {resources("Application", "team"), resources("Application", "team")},
		"of another kind":             {resources("AppProject", "argocd"), resources("AppProject", "argocd")},
		"no resources":                {`{"revision":"Application"}`, `{"revision":"Application"}`},
		"something where there is no": {`{"resources":["Application"]}`, `{"resources":["Application"]}`},
	} {
		t.Run(name, func(t *testing.T) {
			raw, version, err := move.Status(kept(status(c.on)))
			require.NoError(t, err)
			require.JSONEq(t, status(c.shown), string(raw))
			require.Equal(t, converge.VersionOf(raw), version)
			raw, err = move.Back().Operation(json.RawMessage(`{"sync":` + c.shown + `}`))
			require.NoError(t, err)
			require.JSONEq(t, `{"sync":`+c.on+`}`, string(raw))
		})
	}
	for _, operation := range []string{``, `{}`, `{"sync":null}`, `{"sync":{"resources":null},"info":[{"name":"Application","value":"x"}]}`} {
		raw, err := move.Operation(json.RawMessage(operation))
		require.NoError(t, err)
		if operation == "" {
			require.Empty(t, raw)
		} else {
			require.JSONEq(t, operation, string(raw))
		}
	}
	_, err := move.Operation(json.RawMessage(`["Application"]`))
	require.Error(t, err)
}
