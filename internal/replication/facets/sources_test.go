package facets_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/argocd"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/converge"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/facets"
)

// An autonomous spoke decides what it deploys, if its agent is told so: the hub may then say when, and not what.
func TestIntentWithSourcesOfItsOwnIsRefused(t *testing.T) {
	t.Parallel()
	const own = `{"repoURL":"https://git","path":"a"}`
	for name, c := range map[string]struct {
		sync    string
		refuse  bool
		refused string
	}{
		"manifests":             {`{"manifests":["{}"]}`, true, "sync.manifests"},
		"a source":              {`{"source":{"repoURL":"https://evil","path":"a"}}`, true, "sync.source"},
		"sources":               {`{"sources":[` + own + `]}`, true, "sync.sources"},
		"its own":               {`{"source":` + own + `,"revision":"abc"}`, true, ""},
		"manifests, if allowed": {`{"manifests":["{}"]}`, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPair(t, facets.Autonomous, func(_, spoke *facets.Options) { spoke.RefuseIntentSources = c.refuse })
			record(t, p.spoke.Applications, p.spokeAPI.put(argocd.Application{
				ObjectMeta: metav1.ObjectMeta{Namespace: "argocd", Name: "guestbook", UID: "on-spoke"},
				Spec:       json.RawMessage(`{"project":"default","source":` + own + `}`),
			}))
			require.NoError(t, p.send(facets.Application, "guestbook"))
			shown := p.hubAPI.get("guestbook")
			shown.Operation = json.RawMessage(`{"info":[{"name":"` + argocd.InfoIntent + `","value":"mine"}],"sync":` + c.sync + `}`)
			record(t, p.hub.Applications, p.hubAPI.put(*shown))
			err := p.send(facets.Intent, "guestbook")
			if c.refused == "" {
				require.NoError(t, err)
				require.JSONEq(t, string(shown.Operation), string(p.spokeAPI.get("guestbook").Operation))
				return
			}
			require.ErrorIs(t, err, converge.ErrRefused)
			require.ErrorContains(t, err, `its `+c.refused+` is not what the application "guestbook" has on the spoke, and the agent runs with --refuse-intent-sources`)
			require.Empty(t, p.spokeAPI.get("guestbook").Operation)

			source := p.here.Sources[facets.Intent].Source
			require.NoError(t, source.ReportResult(t.Context(), "guestbook", converge.Result{Code: converge.Refused, Reason: err.Error()}))
			is := p.hubAPI.get("guestbook")
			require.Empty(t, is.Operation, "it is withdrawn")
			require.Contains(t, string(is.Status), "The spoke refuses what was asked for: ")
			require.False(t, p.isOffered(facets.Intent, "guestbook"))
		})
	}
}
