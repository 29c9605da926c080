package presence_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/presence"
)

func TestHandlerSaysWhyThereIsNothingYet(t *testing.T) {
	ask := func(method string, err error) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		handler := presence.Handler(func() (presence.Report, error) {
			return presence.Report{Agents: []presence.Agent{{Name: "berlin", Connected: true}}}, err
		})
		handler.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, presence.Path, http.NoBody))
		return w
	}
	require.JSONEq(t, `{"started":"0001-01-01T00:00:00Z","agents":[{"name":"berlin","connected":true}]}`, ask(http.MethodGet, nil).Body.String())
	require.Equal(t, http.StatusMethodNotAllowed, ask(http.MethodPost, nil).Code)
	starting := ask(http.MethodGet, errors.New("still starting"))
	require.Equal(t, http.StatusServiceUnavailable, starting.Code)
	require.Equal(t, "still starting\n", starting.Body.String())
}

// An agent is connected to one of several principals, and the others know an older state.
func TestAgentIsConnectedIfItIsToOnePrincipal(t *testing.T) {
	one, other := "argocd-agent-principal-1", "argocd-agent-principal-2"
	early := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	late := early.Add(time.Minute)
	connected := presence.Agent{Name: "berlin", Connected: true, Since: &early}
	left := presence.Agent{Name: "berlin", Since: &late}
	leftEarlier := presence.Agent{Name: "berlin", Since: &early}
	never := presence.Agent{Name: "berlin"}
	for name, c := range map[string]struct {
		said []presence.Agent
		want presence.Agent
	}{
		"moved":         {[]presence.Agent{left, connected, never}, connected},
		"left both":     {[]presence.Agent{leftEarlier, left, never}, left},
		"never came":    {[]presence.Agent{never, never}, never},
		"left the last": {[]presence.Agent{never, leftEarlier}, leftEarlier},
	} {
		for _, order := range [][]int{{0, 1, 2}, {2, 1, 0}} {
			var reports []presence.Report
			for _, i := range order {
				if i < len(c.said) {
					reports = append(reports, presence.Report{Replica: map[bool]string{true: one, false: other}[c.said[i].Connected], Agents: []presence.Agent{c.said[i]}})
				}
			}
			if c.want.Connected {
				c.want.Replica = one
			}
			require.Equal(t, map[string]presence.Agent{"berlin": c.want}, presence.Merge(reports), name)
		}
	}
}
