package e2e_test

import (
	"encoding/json"
	"os"
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
		State, Build, Replica string
		Session               *struct {
			Mode, Address, Kubernetes, ArgoCD string
			Backlog                           int
			CertificateEnd                    time.Time
		}
	}
	Problems []string
}

// installedController is Argo CD's application controller as it is installed on a spoke. The lab's runs in no Pod.
const installedController = `
apiVersion: apps/v1
kind: StatefulSet
metadata:
  name: argocd-application-controller
  labels: {app.kubernetes.io/component: application-controller, app.kubernetes.io/part-of: argocd, app.kubernetes.io/name: argocd-application-controller}
spec:
  selector: {matchLabels: {app.kubernetes.io/name: argocd-application-controller}}
  template:
    metadata: {labels: {app.kubernetes.io/name: argocd-application-controller}}
    spec: {containers: [{name: argocd-application-controller, image: "quay.io/argoproj/argocd:v3.1.9"}]}
`

func TestStatusFollowsTheFleet(t *testing.T) {
	t.Parallel()
	s := prepareSite(t, unique("status"), lab.AgentOptions{})
	require.NoError(t, s.spoke.ApplyYAML(t.Context(), []byte(installedController), s.name))
	require.NoError(t, s.agent.Start(t.Context()))
	s.connected(t)
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
	about, err := s.spoke.Kubernetes.Discovery().ServerVersion()
	require.NoError(t, err)
	require.Equal(t, about.GitVersion, session.Kubernetes)
	require.Equal(t, "v3.1.9", session.ArgoCD)
	host, err := os.Hostname()
	require.NoError(t, err)
	require.Equal(t, host, rows[0].Connection.Replica)
	require.True(t, session.CertificateEnd.After(time.Now()))
	require.Empty(t, rows[0].Problems)
	text := a.does(t, "status -o wide"+from).output
	require.Regexp(t, `^AGENT +MODE +CONNECTION +LAG +BACKLOG +HELD +CERTIFICATE UNTIL +BUILD +ARGO CD +KUBERNETES +REPLICA +PROBLEMS +ADDRESS`, text)
	require.Regexp(t, `(?m)^`+s.name+` +managed +connected for \S+ +\S+ +\d+ +0 +\d{4}-\S+Z +\S+ +v3\.1\.9 +v\S+ +\S+ +0 +127\.`, text)

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
	a.fails(t, "status --principal-metrics http://127.0.0.1:1", "agents: not known whether they are connected: 1")
}
