package commands

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/agents"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/checks"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/principals"
)

func TestColoursAreForTerminals(t *testing.T) {
	t.Parallel()
	file, err := os.Create(filepath.Join(t.TempDir(), "file"))
	require.NoError(t, err)
	defer file.Close()
	require.Equal(t, "ok     ", painter(file)(checks.OK))
	require.Equal(t, "ok     ", painter(&bytes.Buffer{})(checks.OK))
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("no terminal can be had here: %v", err)
	}
	defer terminal.Close()
	require.Equal(t, "\x1b[32mok     \x1b[0m", painter(terminal)(checks.OK))
}

// What is drawn over an older table leaves nothing of it, and what is below the table has columns of its own.
func TestTableIsDrawnOverTheOneBefore(t *testing.T) {
	t.Parallel()
	since := time.Now().Add(-time.Minute)
	all := []agents.Agent{{Name: "berlin", Mode: "managed", Problems: []string{"it is away"}, Connection: principals.Connection{State: principals.Away, Since: &since}}}
	var screen bytes.Buffer
	require.NoError(t, (&statusFlags{}).redraw(&screen, all))
	text := screen.String()
	require.True(t, strings.HasPrefix(text, toTop+"AGENT   MODE "), text)
	require.True(t, strings.HasSuffix(text, forgetBelow), text)
	require.Contains(t, text, "away for 1m0s")
	require.Contains(t, text, "berlin: PROBLEM  it is away")
	require.Equal(t, strings.Count(text, "\n"), strings.Count(text, forgetRight+"\n"))
}
