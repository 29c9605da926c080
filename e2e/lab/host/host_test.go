package host_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
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

func TestFolderOfKilledLabIsRemovedByTheNext(t *testing.T) {
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

// The lock is what tells the next lab that a folder is abandoned: one without would stay for ever.
func TestAFolderThatCannotBeLockedIsRemovedAtOnce(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	h, err := host.New(host.Options{})
	require.NoError(t, err)
	name := len(strings.TrimRight(filepath.Base(h.Dir()), "0123456789")) + len("4294967295")
	require.NoError(t, h.Close())

	// A folder of that name can just be made there, and a file in it has a path that is too long for Linux.
	deep := t.TempDir()
	for room := longestPath - name - len("//"); len(deep) < room; {
		deep = filepath.Join(deep, strings.Repeat("x", max(1, min(200, room-len(deep)-len("/")))))
	}
	require.NoError(t, os.MkdirAll(deep, 0o755))
	t.Setenv("TMPDIR", deep)
	_, err = host.New(host.Options{})
	require.ErrorIs(t, err, syscall.ENAMETOOLONG)
	require.ErrorContains(t, err, "lock of the lab's folder")
	left, err := os.ReadDir(deep)
	require.NoError(t, err)
	require.Empty(t, left)
}

// longestPath is what Linux allows, without the zero at the end.
const longestPath = 4095

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

func TestUniqueNumbersRepeatedNames(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	h, err := host.New(host.Options{})
	require.NoError(t, err)
	defer func() { require.NoError(t, h.Close()) }()
	require.Equal(t, "agent", h.Unique("agent"))
	require.Equal(t, "agent-2", h.Unique("agent"))
}

func TestPortsAreGivenOnce(t *testing.T) {
	var ports port.Allocator
	defer func() { require.NoError(t, ports.Close()) }()
	seen := make(map[int]bool)
	for range 200 {
		p, err := ports.Free()
		require.NoError(t, err)
		require.False(t, seen[p])
		seen[p] = true
	}
}

// A port belongs to the lab from the time when it is chosen: also before its program starts and while that is away.
func TestAPortIsHeldUntilClose(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("ports are only held on Linux")
	}
	var ports port.Allocator
	p, err := ports.Free()
	require.NoError(t, err)
	address := port.Address(p)
	for range 2 { // the program comes, goes, and comes back
		require.Error(t, listen(t, address, 0), "whoever looks for a free port must find this one taken")
		var dialer net.Dialer
		_, err = dialer.DialContext(t.Context(), "tcp", address)
		require.ErrorIs(t, err, syscall.ECONNREFUSED)
		require.NoError(t, listen(t, address, 1), "the program that it is for must be able to listen")
	}
	require.NoError(t, ports.Close())
	require.NoError(t, listen(t, address, 0))
}

// listen listens for a moment, with or without leave to use the address again.
func listen(t *testing.T, address string, reuse int) error {
	t.Helper()
	config := net.ListenConfig{Control: func(_, _ string, socket syscall.RawConn) error {
		var failure error
		err := socket.Control(func(fd uintptr) {
			failure = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_REUSEADDR, reuse)
		})
		return errors.Join(err, failure)
	}}
	listener, err := config.Listen(t.Context(), "tcp", address)
	if err != nil {
		return err
	}
	return listener.Close()
}

func program(name, script string) host.Program {
	return host.Program{Name: name, Path: "/bin/sh", Args: func([]int) []string { return []string{"-c", script} }}
}
