package node_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/node"
)

// A lab that is killed leaves containers, mounts and network namespaces. The next that comes removes them, and nobody else's.
func TestWhatIsKilledIsSweptUp(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(within(t), os.Args[0])
	cmd.Env = append(os.Environ(), abandon+"=yes")
	output, err := cmd.StdoutPipe()
	require.NoError(t, err)
	cmd.Stderr = os.Stderr
	require.NoError(t, cmd.Start())
	var dir, address string
	for lines := bufio.NewScanner(output); dir == "" && lines.Scan(); {
		_, _ = fmt.Sscanf(lines.Text(), "abandoned: %s %s", &dir, &address) // the others are the lab's
	}
	require.NotEmpty(t, dir)
	require.Contains(t, mounts(t), dir)
	require.NoError(t, cmd.Process.Kill())
	require.Error(t, cmd.Wait())

	require.NoError(t, node.Sweep(within(t)))
	require.NotContains(t, mounts(t), dir)
	require.NoDirExists(t, dir)
	links, err := exec.CommandContext(t.Context(), "ip", "route").CombinedOutput()
	require.NoError(t, err)
	require.NotContains(t, string(links), address)
	processes, err := exec.CommandContext(t.Context(), "ps", "-eo", "args").CombinedOutput()
	require.NoError(t, err)
	require.NotContains(t, string(processes), dir)
	require.Contains(t, mounts(t), hub.Node.Dir(), "what others have is theirs")
}

func mounts(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("/proc/self/mountinfo")
	require.NoError(t, err)
	return string(text)
}
