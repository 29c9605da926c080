package spokes_test

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Connections that may go through a principal that shuts down are closed, those in use after their read; and what comes next is noticed as before.
func TestConnectionsAreLeft(t *testing.T) {
	t.Parallel()
	w := begin(t, ample, plain)
	w.set(treeSpoke, "one")
	require.Equal(t, "one", w.get(treeHub))
	streams, asked := w.agent.Commands("PSUBSCRIBE"), w.gets()
	w.agent.HoldReplies()
	read := w.ask("app|resources-tree|east_guestbook|another")
	w.agent.WaitForCommands(t, func(commands map[string]int) bool { return commands["GET"] == asked+1 })
	w.spokes.Leave()
	w.agent.WaitForCommands(t, func(commands map[string]int) bool { return commands["PSUBSCRIBE"] == streams+1 })
	w.agent.Release()
	_, failure, err := read.Wait(t.Context())
	require.NoError(t, failure, "it may end")
	require.NoError(t, err)
	w.agent.WaitForConnections(t, 1) // the new stream
	w.setAndWait(treeSpoke, "two")
	require.Equal(t, "two", w.get(treeHub))
	require.Equal(t, streams+1, w.agent.Commands("PSUBSCRIBE"))
}
