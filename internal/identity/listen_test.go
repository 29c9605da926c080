package identity_test

import (
	"context"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/logging/logtest"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity"
)

// outside returns an address of this machine that is not a loopback one. Connections to it come from it.
func outside(t *testing.T) string {
	t.Helper()
	addresses, err := net.InterfaceAddrs()
	require.NoError(t, err)
	for _, address := range addresses {
		if network, ok := address.(*net.IPNet); ok && network.IP.To4() != nil && !network.IP.IsLoopback() {
			return network.IP.String()
		}
	}
	t.Skip("this machine has loopback addresses only: nothing can connect from elsewhere")
	return ""
}

// listen listens as the options say, until the test ends.
func listen(t *testing.T, p identity.Proxies, address string, logger *slog.Logger) net.Listener {
	t.Helper()
	listener, err := p.Listen(t.Context(), address, logger)
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() }) // some tests close it themselves
	return listener
}

// dial connects, and says who it is.
func dial(t *testing.T, network, address, name string) net.Conn {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, network, address)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(time.Minute)))
	_, err = io.WriteString(conn, name)
	require.NoError(t, err)
	return conn
}

// accepted returns who is the next connection of a listener, and where it comes from.
func accepted(t *testing.T, listener net.Listener) (name string, from net.Addr) {
	t.Helper()
	conn, err := listener.Accept()
	require.NoError(t, err)
	defer conn.Close()
	require.NoError(t, conn.SetDeadline(time.Now().Add(time.Minute)))
	buffer := make([]byte, 20)
	n, err := conn.Read(buffer)
	require.NoError(t, err)
	return string(buffer[:n]), conn.RemoteAddr()
}

func TestPlainTextIsTakenFromThisMachineOnly(t *testing.T) {
	t.Parallel()
	host, log := outside(t), &logtest.Log{}
	listener := listen(t, identity.Proxies{Local: true}, "0.0.0.0:0", slog.New(slog.NewTextHandler(log, nil)))
	_, port, err := net.SplitHostPort(listener.Addr().String())
	require.NoError(t, err)
	var refused []net.Conn
	for range 3 {
		refused = append(refused, dial(t, "tcp", net.JoinHostPort(host, port), "stranger"))
	}
	dial(t, "tcp", net.JoinHostPort("127.0.0.1", port), "sidecar")
	name, _ := accepted(t, listener)
	require.Equal(t, "sidecar", name)
	for _, conn := range refused {
		_, err := conn.Read(make([]byte, 1))
		require.Error(t, err)
		require.NotErrorIs(t, err, os.ErrDeadlineExceeded, "it was closed")
	}
	require.Equal(t, 1, strings.Count(log.String(), "Refused connection"), log)
	require.Contains(t, log.String(), "loopback addresses only")
	require.Contains(t, log.String(), "address="+host)

	// With TLS everybody may try.
	listener = listen(t, identity.Proxies{IDs: []string{ingress}}, "0.0.0.0:0", slog.New(slog.NewTextHandler(log, nil)))
	_, port, err = net.SplitHostPort(listener.Addr().String())
	require.NoError(t, err)
	dial(t, "tcp", net.JoinHostPort(host, port), "stranger")
	name, _ = accepted(t, listener)
	require.Equal(t, "stranger", name)
}

func TestUnixSocket(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "proxy.sock")
	p := identity.Proxies{Local: true, Socket: path}
	// A crash leaves the file.
	crashed, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
	require.NoError(t, err)
	crashed.SetUnlinkOnClose(false)
	require.NoError(t, crashed.Close())
	require.FileExists(t, path)

	listener := listen(t, p, "", slog.New(slog.DiscardHandler))
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o660), info.Mode().Perm(), "the sidecar is another user of the same group")
	dial(t, "unix", path, "sidecar")
	name, from := accepted(t, listener)
	require.Equal(t, "sidecar", name)
	proof, err := p.Prove(identity.Connection{Address: from, Header: []string{"URI=" + berlin}})
	require.NoError(t, err)
	require.Equal(t, []string{berlin}, proof.URIs)

	// One that is in use stays with whom it belongs to.
	_, err = p.Listen(t.Context(), "", slog.New(slog.DiscardHandler))
	require.ErrorContains(t, err, "--listen-socket")
	require.ErrorContains(t, err, "in use")
	require.NoError(t, listener.Close())
	require.NoFileExists(t, path)
}

func TestFileThatIsNoSocketIsKept(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "notes")
	require.NoError(t, os.WriteFile(path, []byte("mine"), 0o600))
	_, err := identity.Proxies{Local: true, Socket: path}.Listen(t.Context(), "", slog.New(slog.DiscardHandler))
	require.ErrorContains(t, err, "--listen-socket")
	kept, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "mine", string(kept))
}
