package connlimit_test

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/credentials"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/logging/logtest"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/pki"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/connlimit"
)

// server is a TLS server with limits, which says "hello" to whom it admits and keeps the connection.
type server struct {
	ca      *pki.CA
	address string
	log     *logtest.Log
	stop    func()
}

func serve(t *testing.T, total, perCertificate int) *server {
	t.Helper()
	ca, err := pki.NewCA(pki.CAOptions{CommonName: "test"})
	require.NoError(t, err)
	pair, err := ca.IssueServer(pki.ServerOptions{CommonName: "server", Addresses: []net.IP{net.IPv4(127, 0, 0, 1)}})
	require.NoError(t, err)
	own, err := pair.TLS()
	require.NoError(t, err)
	roots := x509.NewCertPool()
	roots.AddCert(ca.Certificate())
	s := &server{ca: ca, log: &logtest.Log{}}
	limit := connlimit.New(connlimit.Options{
		Total: total, Setting: "--max-connections", PerCertificate: perCertificate, Logger: slog.New(slog.NewTextHandler(s.log, nil)),
	})
	raw, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s.address = raw.Addr().String()
	listener := limit.Listen(raw)
	config := &tls.Config{Certificates: []tls.Certificate{own}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: roots, MinVersion: tls.VersionTLS13}
	var work sync.WaitGroup
	work.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			work.Go(func() {
				defer func() { _ = conn.Close() }()
				secure, _, err := connlimit.Credentials(credentials.NewTLS(config)).ServerHandshake(conn)
				if err != nil {
					return
				}
				defer func() { _ = secure.Close() }()
				if _, err := io.WriteString(secure, "hello"); err == nil {
					_, _ = io.Copy(io.Discard, secure)
				}
			})
		}
	})
	s.stop = func() { _ = raw.Close(); work.Wait() }
	t.Cleanup(s.stop)
	return s
}

// connect returns a connection that is served, or why it is not.
func (s *server) connect(t *testing.T, own tls.Certificate) (net.Conn, error) {
	t.Helper()
	raw, err := net.Dial("tcp", s.address)
	if err != nil {
		return nil, err
	}
	return s.finish(t, raw, own)
}

// finish does the client's part of a handshake.
func (s *server) finish(t *testing.T, raw net.Conn, own tls.Certificate) (net.Conn, error) {
	t.Helper()
	roots := x509.NewCertPool()
	roots.AddCert(s.ca.Certificate())
	conn := tls.Client(raw, &tls.Config{NextProtos: []string{"h2"}, Certificates: []tls.Certificate{own}, RootCAs: roots, ServerName: "127.0.0.1", MinVersion: tls.VersionTLS13})
	t.Cleanup(func() { _ = conn.Close() })
	_, err := io.ReadFull(conn, make([]byte, len("hello")))
	return conn, err
}

func (s *server) client(t *testing.T, name string) tls.Certificate {
	t.Helper()
	pair, err := s.ca.IssueClient(pki.ClientOptions{CommonName: name})
	require.NoError(t, err)
	own, err := pair.TLS()
	require.NoError(t, err)
	return own
}

// One certificate's connections keep out nobody else's, and one that is closed makes room.
func TestConnectionsOfACertificateAreBounded(t *testing.T) {
	t.Parallel()
	s := serve(t, 100, 3)
	berlin, paris := s.client(t, "berlin"), s.client(t, "paris")
	first, err := s.connect(t, berlin)
	require.NoError(t, err)
	for range 2 {
		_, err = s.connect(t, berlin)
		require.NoError(t, err)
	}
	for range 5 {
		_, err = s.connect(t, berlin)
		require.Error(t, err)
	}
	_, err = s.connect(t, paris)
	require.NoError(t, err)
	require.NoError(t, first.Close())
	require.Eventually(t, func() bool { _, err = s.connect(t, berlin); return err == nil }, 2*time.Minute, time.Millisecond)
	s.stopAndCount(t, "limit of connections with one certificate reached", "berlin")
}

func TestConnectionsAreBoundedInAll(t *testing.T) {
	t.Parallel()
	s := serve(t, 5, 3)
	for _, name := range []string{"berlin", "paris", "rome", "oslo", "bern"} {
		_, err := s.connect(t, s.client(t, name))
		require.NoError(t, err)
	}
	for range 5 {
		_, err := s.connect(t, s.client(t, "late"))
		require.Error(t, err)
	}
	s.stopAndCount(t, "limit of all connections reached", "--max-connections")
}

// Anybody can begin a handshake and leave it at that. It keeps nobody out, and nobody's connection ends by it.
func TestUnfinishedHandshakesKeepNobodyOut(t *testing.T) {
	t.Parallel()
	s := serve(t, 8, 3) // and two handshakes besides
	berlin, paris := s.client(t, "berlin"), s.client(t, "paris")
	kept, err := s.connect(t, berlin)
	require.NoError(t, err)
	var silent []net.Conn
	for range 50 {
		conn, err := net.Dial("tcp", s.address)
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		silent = append(silent, conn)
	}
	_, err = s.connect(t, paris)
	require.NoError(t, err)
	_, err = silent[0].Read(make([]byte, 1))
	require.Error(t, err, "the oldest made room")
	require.NoError(t, kept.SetReadDeadline(time.Now().Add(time.Millisecond)))
	_, err = kept.Read(make([]byte, 1))
	require.ErrorIs(t, err, os.ErrDeadlineExceeded, "it is open")
	s.stopAndCount(t, "limit of TLS handshakes in progress reached", "--max-connections")
}

// One address' flood ends its own handshakes first, not those that others began before.
func TestAddressWithMostHandshakesMakesRoom(t *testing.T) {
	t.Parallel()
	s := serve(t, 40, 3) // and ten handshakes besides
	slow := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
	raw, err := slow.Dial("tcp", s.address)
	require.NoError(t, err)
	for range 50 {
		conn, err := net.Dial("tcp", s.address)
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
	}
	_, err = s.connect(t, s.client(t, "paris")) // so that all of them have been accepted
	require.NoError(t, err)
	conn, err := s.finish(t, raw, s.client(t, "berlin"))
	require.NoError(t, err)
	require.NotNil(t, conn)
}

// stopAndCount requires that a refusal was logged once, with a detail.
func (s *server) stopAndCount(t *testing.T, message, detail string) {
	t.Helper()
	t.Cleanup(func() {
		require.Equal(t, 1, strings.Count(s.log.String(), message), s.log.String())
		require.Contains(t, s.log.String(), detail)
	})
}
