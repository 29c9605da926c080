package dialer_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/test/bufconn"

	syncv1 "github.com/argocd-agent-mesh/argocd-agent-mesh/api/sync/v1"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/bubble"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/certs"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/pki"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/wire"
)

// timeout is how long a test waits for what must happen.
const timeout = 2 * time.Minute

func newCA(t *testing.T) *pki.CA {
	t.Helper()
	ca, err := pki.NewCA(pki.CAOptions{CommonName: "test"})
	require.NoError(t, err)
	return ca
}

func fixed(ca *pki.CA, pair pki.Pair) certs.Options {
	return certs.Options{
		Pair:  certs.Fixed("pair", certs.Blocks{Certificate: pair.Certificate, Key: pair.Key}),
		Roots: certs.Fixed("roots", certs.Blocks{CAs: ca.PEM().Certificate}),
	}
}

// follow runs a source of certificates until the test is over.
func follow(t *testing.T, options certs.Options) *certs.Source {
	t.Helper()
	options.Name, options.Logger = "test", slog.New(slog.DiscardHandler)
	s, err := certs.New(options)
	require.NoError(t, err)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		require.NoError(t, <-ended)
	})
	wait, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	require.NoError(t, s.Wait(wait))
	return s
}

// serve runs a principal with TLS on loopback until the test is over, and returns its address.
func serve(t *testing.T, p *principal, ca *pki.CA) string {
	t.Helper()
	var config net.ListenConfig
	listener, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	serveOn(t, listener, p, ca)
	return listener.Addr().String()
}

// serveOn runs a principal with TLS until the test is over.
func serveOn(t *testing.T, listener net.Listener, p *principal, ca *pki.CA) {
	t.Helper()
	pair, err := ca.IssueServer(pki.ServerOptions{CommonName: "principal", Addresses: []net.IP{net.IPv4(127, 0, 0, 1)}})
	require.NoError(t, err)
	server := grpc.NewServer(
		grpc.Creds(certs.ServerCredentials(certs.ServerOptions{Source: follow(t, fixed(ca, pair))})),
		grpc.ForceServerCodecV2(wire.NewCodec()))
	syncv1.RegisterSyncServer(server, p)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		require.NoError(t, <-served)
	})
}

func issue(t *testing.T, ca *pki.CA) pki.Pair {
	t.Helper()
	pair, err := ca.IssueClient(pki.ClientOptions{CommonName: "a"})
	require.NoError(t, err)
	return pair
}

func serial(t *testing.T, pair pki.Pair) *big.Int {
	t.Helper()
	c, err := pair.TLS()
	require.NoError(t, err)
	return c.Leaf.SerialNumber
}

// shown returns the serial number of the certificate that an agent called with.
func shown(t *testing.T, c *call) *big.Int {
	t.Helper()
	p, ok := peer.FromContext(c.Context())
	require.True(t, ok)
	return p.AuthInfo.(credentials.TLSInfo).State.PeerCertificates[0].SerialNumber
}

func write(t *testing.T, dir string, pair pki.Pair) {
	t.Helper()
	for name, data := range map[string][]byte{"tls.key": pair.Key, "tls.crt": pair.Certificate} {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path+".new", data, 0o600))
		require.NoError(t, os.Rename(path+".new", path))
	}
}

func credential(s *certs.Source) credentials.TransportCredentials {
	return certs.ClientCredentials(certs.ClientOptions{Source: s})
}

// A certificate that is written to the agent's files is shown to the principal, without anybody's doing.
func TestRenewedCertificateIsShown(t *testing.T) {
	ca, dir := newCA(t), t.TempDir()
	first, second := issue(t, ca), issue(t, ca)
	write(t, dir, first)
	material := follow(t, certs.Options{
		Pair:  certs.PairFiles(filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")),
		Roots: certs.Fixed("roots", certs.Blocks{CAs: ca.PEM().Certificate}),
	})
	p := newPrincipal()
	o := newFixture(serve(t, p, ca), material.Changed, credential(material), nil)
	o.run(t)
	c := <-p.calls
	require.Equal(t, serial(t, first), shown(t, c))
	c.greet(t)
	write(t, dir, second)
	require.Equal(t, serial(t, second), shown(t, <-p.calls))
}

// Why there is no connection is reported in words that say what to do.
func TestReasonIsReported(t *testing.T) {
	ca := newCA(t)
	var config net.ListenConfig
	nobody, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, nobody.Close())
	for name, c := range map[string]struct {
		address string
		pair    pki.Pair
		trusted *pki.CA
		want    string
	}{
		"nobody listens":              {nobody.Addr().String(), issue(t, ca), ca, "connection refused"},
		"the principal is a stranger": {serve(t, newPrincipal(), ca), issue(t, ca), newCA(t), "certificate"},
		"the agent is a stranger":     {serve(t, newPrincipal(), ca), issue(t, newCA(t)), ca, "certificate"},
	} {
		t.Run(name, func(t *testing.T) {
			material := follow(t, fixed(c.trusted, c.pair))
			o := newFixture(c.address, material.Changed, credential(material), nil)
			o.run(t)
			require.Eventually(t, func() bool { // that an attempt has failed shows in nothing else
				return o.Connected().Error() != "the first connection is being made"
			}, timeout, 10*time.Millisecond)
			require.ErrorContains(t, o.Connected(), c.want)
		})
	}
}

// pipe is an end of a pipe in memory that fails as a connection of the operating system does.
type pipe struct{ net.Conn }

func (p pipe) Write(data []byte) (int, error) {
	n, err := p.Conn.Write(data)
	if errors.Is(err, io.ErrClosedPipe) {
		err = syscall.EPIPE
	}
	return n, err
}

// A certificate that is not trusted is a refusal, although gRPC reports no more than a principal that is unavailable.
func TestAgentWhoseHandshakeIsRefusedBacksOff(t *testing.T) {
	for name, strangers := range map[string]struct{ principal, agent bool }{
		"the principal is a stranger": {principal: true}, "the agent is a stranger": {agent: true},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				ca := newCA(t)
				theirs, mine := ca, ca
				if strangers.principal {
					theirs = newCA(t)
				}
				if strangers.agent {
					mine = newCA(t)
				}
				listener := bufconn.Listen(1 << 20)
				p := newPrincipal()
				serveOn(t, listener, p, ca)
				material := follow(t, fixed(theirs, issue(t, mine)))
				o := newFixture("passthrough:127.0.0.1:8443", material.Changed, credential(material), func(ctx context.Context, _ string) (net.Conn, error) {
					conn, err := listener.DialContext(ctx)
					return pipe{conn}, err
				})
				o.run(t)
				after(time.Hour)
				dials := o.dialled()
				want := 500 * time.Millisecond
				for i := range 9 {
					requireJittered(t, want, dials[i+1].Sub(dials[i]))
					want = min(2*want, 30*time.Second)
				}
				require.Contains(t, o.log.String(), "certificate")
			})
		})
	}
}
