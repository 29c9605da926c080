package host_test

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/host"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/port"
)

func TestCloseLeavesNothingBehind(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	h, err := host.New(host.Options{})
	require.NoError(t, err)
	p, _, err := h.Launch(t.Context(), program("stays", "exec sleep 1000"))
	require.NoError(t, err)
	l, err := h.Link(t.Context(), "link", "127.0.0.1:1")
	require.NoError(t, err)
	_, err = h.Write("some/file", []byte("text"))
	require.NoError(t, err)

	require.NoError(t, h.Close())
	require.False(t, p.Running())
	require.NoDirExists(t, h.Dir())
	var dialer net.Dialer
	_, err = dialer.DialContext(t.Context(), "tcp", l.Address())
	require.Error(t, err)
}

func TestTheFolderOfAKilledLabIsRemovedByTheNext(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	alive, err := host.New(host.Options{})
	require.NoError(t, err)
	defer func() { require.NoError(t, alive.Close()) }()
	// A lab that was killed leaves its folder with a lock that nobody holds.
	dead := filepath.Join(os.Getenv("TMPDIR"), filepath.Base(alive.Dir())+"-dead")
	require.NoError(t, os.MkdirAll(dead, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dead, "lock"), nil, 0o600))

	next, err := host.New(host.Options{})
	require.NoError(t, err)
	require.NoError(t, next.Close())
	require.NoDirExists(t, dead)
	require.DirExists(t, alive.Dir())
}

func TestLaunchTakesOtherPortsWhenItsOwnAreTaken(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	h, err := host.New(host.Options{})
	require.NoError(t, err)
	defer func() { require.NoError(t, h.Close()) }()

	tries := 0
	contested := program("contested", "")
	contested.Ports = 1
	contested.Args = func(ports []int) []string {
		if tries++; tries < 3 {
			return []string{"-c", "echo listen: address already in use; exit 1"}
		}
		return []string{"-c", "echo port " + strconv.Itoa(ports[0]) + "; exec sleep 1000"}
	}
	contested.Ready = func([]int) func(context.Context) error {
		return func(context.Context) error {
			if tries < 3 {
				return os.ErrNotExist
			}
			return nil
		}
	}
	p, ports, err := h.Launch(t.Context(), contested)
	require.NoError(t, err)
	require.Equal(t, 3, tries)
	require.NoError(t, p.WaitLog(t.Context(), "port "+strconv.Itoa(ports[0])))
	require.Len(t, h.Processes(), 1)
}

func TestAFolderWithSomethingInItIsRefused(t *testing.T) {
	dir := t.TempDir()
	precious := filepath.Join(dir, "precious")
	require.NoError(t, os.WriteFile(precious, nil, 0o600))
	_, err := host.New(host.Options{Dir: dir})
	require.ErrorIs(t, err, host.ErrOccupied)
	require.FileExists(t, precious)
}

func TestUniqueNumbersWhatComesAgain(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	h, err := host.New(host.Options{})
	require.NoError(t, err)
	defer func() { require.NoError(t, h.Close()) }()
	require.Equal(t, "agent", h.Unique("agent"))
	require.Equal(t, "agent-2", h.Unique("agent"))
}

func TestPortsAreGivenOnce(t *testing.T) {
	var ports port.Allocator
	seen := make(map[int]bool)
	for range 200 {
		p, err := ports.Free()
		require.NoError(t, err)
		require.False(t, seen[p])
		seen[p] = true
	}
}

func program(name, script string) host.Program {
	return host.Program{Name: name, Path: "/bin/sh", Args: func([]int) []string { return []string{"-c", script} }}
}
