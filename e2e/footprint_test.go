package e2e_test

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/fleet"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/host"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/port"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/process"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/profile"
)

// manyAgents is how many there are: so many that what the principal does besides does not show.
const manyAgents = 1000

// What a principal may hold of each of them. An agent that has left is forgotten; the rest is what the program's tables have grown by,
// and what other tests do to the hub meanwhile.
const (
	connectedGoroutines, connectedBytes = 8, 95_000
	leftGoroutines, leftBytes           = 0, 12_000
)

// A hub is for thousands of agents, most of which have nothing to say most of the time.
func TestPrincipalMemoryAndGoroutinesGrowPerAgent(t *testing.T) {
	number, err := shared.Host.Port()
	require.NoError(t, err)
	principal := newPrincipal(t, lab.PrincipalOptions{Args: []string{"--pprof-port=" + strconv.Itoa(number)}})
	profiles := port.Address(number)
	before, err := profile.Read(t.Context(), profiles)
	require.NoError(t, err)

	createLightNamespaces(t)
	agents := startFleet(t, principal)
	shows(t, principal.MetricsURL, "argocd_principal_connected_agents "+strconv.Itoa(manyAgents))
	requireHeld(t, profiles, before, connectedGoroutines, connectedBytes)

	stopped(t, agents.Stop)
	shows(t, principal.MetricsURL, "argocd_principal_connected_agents 0")
	requireHeld(t, profiles, before, leftGoroutines, leftBytes)
}

// createLightNamespaces makes the namespaces by which the hub knows the agents of startFleet. If it knew them by cluster Secrets, the
// principal would remember them when they have left.
func createLightNamespaces(t *testing.T) {
	t.Helper()
	work, ctx := errgroup.WithContext(t.Context())
	work.SetLimit(32)
	for i := range manyAgents {
		work.Go(func() error { return shared.Hub.Apply(ctx, namespace(fmt.Sprintf("light-%05d", i))) })
	}
	require.NoError(t, work.Wait())
}

// startFleet has many agents connect to a principal.
func startFleet(t *testing.T, principal *lab.Principal) *process.Process {
	t.Helper()
	program := filepath.Join(t.TempDir(), "fleet")
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, "./cmd/fleet").CombinedOutput()
	require.NoError(t, err, "%s", out)
	ca := shared.CA.PEM()
	certificate, err := shared.Host.Write(filepath.Join("fleet", "ca.crt"), ca.Certificate)
	require.NoError(t, err)
	key, err := shared.Host.Write(filepath.Join("fleet", "ca.key"), ca.Key)
	require.NoError(t, err)
	agents, _, err := shared.Host.Launch(t.Context(), host.Program{
		Name: "fleet", Path: program,
		Args: func([]int) []string { return []string{principal.Address, certificate, key, strconv.Itoa(manyAgents)} },
	})
	require.NoError(t, err)
	t.Cleanup(func() { stopped(t, agents.Stop) })
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	require.NoError(t, agents.WaitLog(ctx, fleet.ConnectedLine))
	return agents
}

// requireHeld waits until a principal holds no more than that for each of many agents, compared with before any came. What an
// agent is connected by, and what it left, takes a moment to settle.
func requireHeld(t *testing.T, profiles string, before profile.Usage, goroutines, bytes int) {
	t.Helper()
	var now profile.Usage
	each := func(now, before int64) float64 { return float64(now-before) / manyAgents }
	within := func() bool {
		var err error
		now, err = profile.Read(t.Context(), profiles)
		return assert.NoError(t, err) &&
			each(int64(now.Goroutines), int64(before.Goroutines)) < float64(goroutines)+0.1 && each(now.Bytes, before.Bytes) < float64(bytes)
	}
	held := assert.Eventually(t, within, 2*time.Minute, time.Second)
	t.Logf("of each agent: %.2f goroutines, %.0f bytes", each(int64(now.Goroutines), int64(before.Goroutines)), each(now.Bytes, before.Bytes))
	require.True(t, held, "want at most %d goroutines, %d bytes", goroutines, bytes)
}
