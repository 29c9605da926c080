package e2e_test

import (
	"encoding/json"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab"
)

// fleetRow is a row of argocd-agentctl status.
type fleetRow struct {
	Name, Mode    string
	HeldDeletions int
	Connection    struct {
		State, Build string
		Session      *struct {
			Mode, Address  string
			Backlog        int
			CertificateEnd time.Time
		}
	}
	Problems []string
}

func TestStatusFollowsTheFleet(t *testing.T) {
	t.Parallel()
	s := newSite(t, "status", lab.AgentOptions{}).connected(t)
	a := newAdmin(t)
	a.does(t, "pki init", "pki issue resource-proxy", "agent create "+s.name)
	from := " --principal-metrics " + strings.TrimSuffix(shared.Principal.MetricsURL, "/metrics")
	rows := decoded[[]fleetRow](t, a, "status"+from)
	require.Len(t, rows, 1)
	session := rows[0].Connection.Session
	require.NotNil(t, session)
	require.Equal(t, "managed", session.Mode)
	require.NotEmpty(t, session.Address)
	require.NotEmpty(t, rows[0].Connection.Build)
	require.True(t, session.CertificateEnd.After(time.Now()))
	require.Empty(t, rows[0].Problems)
	text := a.does(t, "status -o wide"+from).output
	require.Regexp(t, `^AGENT +MODE +CONNECTION +LAG +BACKLOG +HELD +CERTIFICATE UNTIL +BUILD +PROBLEMS +ADDRESS`, text)
	require.Regexp(t, `(?m)^`+s.name+` +managed +connected for \S+ +\S+ +\d+ +0 +\d{4}-\S+Z +\S+ +0 +127\.`, text)

	watch := exec.CommandContext(t.Context(), shared.AgentctlPath(), strings.Fields("status -w --interval 1s -o json"+from)...)
	watch.Env = a.environment
	out, err := watch.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, watch.Start())
	documents := json.NewDecoder(out)
	state := func() string {
		var rows []fleetRow
		require.NoError(t, documents.Decode(&rows))
		return rows[0].Connection.State
	}
	require.Equal(t, "connected", state())
	stopped(t, s.agent.Stop)
	for state() != "away" {
	}
	require.NoError(t, watch.Process.Kill())
	require.Error(t, watch.Wait())
	a.fails(t, "status"+from, "agents: problems found: 1")
	require.Contains(t, a.shows(t, "status"+from), "it has not been connected since")
}
