package certs_test

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/certs"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/pki"
)

// end is one side's material, which a test may change.
type end struct {
	*fixture
	pair, roots *memory
}

func newEnd(t *testing.T, pair pki.Pair, trusted *pki.CA) *end {
	t.Helper()
	e := &end{pair: newMemory(pairBlocks(pair)), roots: newMemory(rootsBlocks(trusted))}
	e.fixture = run(t, certs.Options{Pair: e.pair, Roots: e.roots}).ready(t)
	e.log.await(t, "Loaded TLS certificates")
	e.log.await(t, "Loaded TLS certificates")
	return e
}

// serve starts a gRPC server and returns its address.
func serve(t *testing.T, transport credentials.TransportCredentials) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server := grpc.NewServer(grpc.Creds(transport))
	grpc_health_v1.RegisterHealthServer(server, health.NewServer())
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		require.NoError(t, <-done)
	})
	return listener.Addr().String()
}

// call makes one request over a connection of its own.
func call(t *testing.T, address string, transport credentials.TransportCredentials) error {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(transport))
	require.NoError(t, err)
	defer conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	_, err = grpc_health_v1.NewHealthClient(conn).Check(ctx, &grpc_health_v1.HealthCheckRequest{})
	return err
}

func server(e *end) credentials.TransportCredentials {
	return certs.ServerCredentials(certs.ServerOptions{Source: e.Source})
}

func client(e *end) credentials.TransportCredentials {
	return certs.ClientCredentials(certs.ClientOptions{Source: e.Source})
}

func TestFailedHandshakeIsExplainedOnBothSides(t *testing.T) {
	ca, stranger := newCA(t, "CA"), newCA(t, "stranger")
	goodServer := serverPair(t, ca, pki.Validity{})
	goodClient := clientPair(t, ca, "agent-a", pki.Validity{})
	elsewhere, err := ca.IssueServer(pki.ServerOptions{Names: []string{"elsewhere.test"}})
	require.NoError(t, err)

	tests := map[string]struct {
		server, client             pki.Pair
		serverTrusts, clientTrusts *pki.CA
		reason                     certs.Reason // on the server
		serverLogs, clientGets     []string
	}{
		"client expired": {
			client: clientPair(t, ca, "agent-a", past()), reason: certs.Expired,
			serverLogs: []string{"client certificate", "CN=agent-a", "expired at", "renew it"},
			clientGets: []string{"refused our client certificate", "CN=agent-a", "expired at", "renew it"},
		},
		"client not yet valid": {
			client: clientPair(t, ca, "agent-a", future()), reason: certs.NotYetValid,
			serverLogs: []string{"client certificate", "not valid before", "clocks"},
			clientGets: []string{"refused our client certificate", "not valid before", "clocks"},
		},
		"client of another CA": {
			client: clientPair(t, stranger, "agent-a", pki.Validity{}), reason: certs.UnknownAuthority,
			serverLogs: []string{"issued by", "CN=stranger", "none of the CAs trusted here", "CN=CA"},
			clientGets: []string{"refused our client certificate", "issuer CN=stranger is not trusted there", "it trusts CN=CA"},
		},
		"client with a server's certificate": {
			client: goodServer, reason: certs.BadCertificate,
			serverLogs: []string{"client certificate", "CN=principal", "incompatible key usage"},
			clientGets: []string{"refused our client certificate", "CN=principal", "its log says which"},
		},
		"server expired": {
			server: serverPair(t, ca, past()), reason: certs.RefusedByPeer,
			serverLogs: []string{"refused our server certificate", "CN=principal", "expired at", "renew it"},
			clientGets: []string{"server certificate", "CN=principal", "expired at", "renew it"},
		},
		"server not yet valid": {
			server: serverPair(t, ca, future()), reason: certs.RefusedByPeer,
			serverLogs: []string{"refused our server certificate", "not valid before"},
			clientGets: []string{"server certificate", "not valid before", "clocks"},
		},
		"server of another CA": {
			clientTrusts: stranger, reason: certs.RefusedByPeer,
			serverLogs: []string{"refused our server certificate", "CN=principal", "issued by", "CN=CA", "may not trust that issuer"},
			clientGets: []string{"issued by CN=CA", "none of the CAs trusted here (CN=stranger)"},
		},
		"server of another name": {
			server: elsewhere, reason: certs.RefusedByPeer,
			serverLogs: []string{"refused our server certificate", "elsewhere.test", "have wanted another name"},
			clientGets: []string{"is for elsewhere.test, but 127.0.0.1 was wanted"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			principal := newEnd(t, either(test.server, goodServer), orAuthority(test.serverTrusts, ca))
			agent := newEnd(t, either(test.client, goodClient), orAuthority(test.clientTrusts, ca))
			err := call(t, serve(t, server(principal)), client(agent))
			require.Equal(t, codes.Unavailable, status.Code(err))
			for _, want := range test.clientGets {
				require.ErrorContains(t, err, want)
			}
			line := principal.log.await(t, "TLS handshake failed")
			require.Contains(t, line, "reason="+string(test.reason))
			for _, want := range test.serverLogs {
				require.Contains(t, line, want)
			}
			require.Equal(t, 1.0, principal.value(t, failures, "test", string(test.reason)))
		})
	}
}

func either(pair, otherwise pki.Pair) pki.Pair {
	if pair.Certificate == nil {
		return otherwise
	}
	return pair
}

func orAuthority(ca, otherwise *pki.CA) *pki.CA {
	if ca == nil {
		return otherwise
	}
	return ca
}

func TestMissingClientCertificateIsExplainedOnBothSides(t *testing.T) {
	ca := newCA(t, "CA")
	principal := newEnd(t, serverPair(t, ca, pki.Validity{}), ca)
	bare := run(t, certs.Options{Roots: newMemory(rootsBlocks(ca))}).ready(t)

	err := call(t, serve(t, server(principal)), certs.ClientCredentials(certs.ClientOptions{Source: bare.Source}))
	require.ErrorContains(t, err, "requires a certificate and none is configured here")
	line := principal.log.await(t, "TLS handshake failed")
	require.Contains(t, line, "reason=no_certificate")
	require.Contains(t, line, "the client presented no certificate")
}

func TestFailedTLS12HandshakeIsExplained(t *testing.T) {
	ca := newCA(t, "CA")
	principal := newEnd(t, serverPair(t, ca, pki.Validity{}), ca)
	agent := newEnd(t, clientPair(t, ca, "agent-a", past()), ca)
	older, err := certs.ParsePolicy("tls1.2", "tls1.2", nil)
	require.NoError(t, err)

	address := serve(t, certs.ServerCredentials(certs.ServerOptions{Source: principal.Source, Policy: older}))
	err = call(t, address, certs.ClientCredentials(certs.ClientOptions{Source: agent.Source, Policy: older}))
	require.ErrorContains(t, err, "expired at")
	require.Contains(t, principal.log.await(t, "TLS handshake failed"), "reason=expired")

	err = call(t, address, client(agent))
	require.ErrorContains(t, err, "no TLS version in common")
	require.Contains(t, principal.log.await(t, "TLS handshake failed"), "reason=no_common_version")
}

func TestPlainTextClientIsExplained(t *testing.T) {
	ca := newCA(t, "CA")
	principal := newEnd(t, serverPair(t, ca, pki.Validity{}), ca)
	agent := newEnd(t, clientPair(t, ca, "agent-a", pki.Validity{}), ca)

	require.Error(t, call(t, serve(t, server(principal)), insecure.NewCredentials()))
	require.Contains(t, principal.log.await(t, "TLS handshake failed"), "does not speak TLS")
	require.ErrorContains(t, call(t, serve(t, insecure.NewCredentials()), client(agent)), "does not speak TLS")
}

func TestDisconnectDuringHandshakeIsCountedButNotLogged(t *testing.T) {
	ca := newCA(t, "CA")
	principal := newEnd(t, serverPair(t, ca, pki.Validity{}), ca)
	near, far := net.Pipe()
	require.NoError(t, near.Close())
	_, _, err := server(principal).ServerHandshake(far)
	explained := new(certs.HandshakeError)
	require.ErrorAs(t, err, &explained)
	require.Equal(t, certs.Disconnected, explained.Reason)
	require.Equal(t, 1.0, principal.value(t, failures, "test", "disconnected"))
	principal.log.requireNone(t)
}

func TestCAAndCertificatesRotateWithoutRestart(t *testing.T) {
	old, renewed := newCA(t, "CA"), newCA(t, "CA")
	principal := newEnd(t, serverPair(t, old, pki.Validity{}), old)
	agent := newEnd(t, clientPair(t, old, "agent-a", past()), old)
	address, dial := serve(t, server(principal)), client(agent)
	require.ErrorContains(t, call(t, address, dial), "expired at")

	agent.after(t, func() { agent.pair.put(pairBlocks(clientPair(t, old, "agent-a", pki.Validity{}))) })
	require.NoError(t, call(t, address, dial))

	// The new CA has the old one's name. First both sides learn to trust it, then both get certificates of it.
	principal.after(t, func() { principal.roots.put(rootsBlocks(old, renewed)) })
	agent.after(t, func() { agent.roots.put(rootsBlocks(old, renewed)) })
	require.NoError(t, call(t, address, dial))
	agent.after(t, func() { agent.pair.put(pairBlocks(clientPair(t, renewed, "agent-a", pki.Validity{}))) })
	require.NoError(t, call(t, address, dial))
	principal.after(t, func() { principal.pair.put(pairBlocks(serverPair(t, renewed, pki.Validity{}))) })
	require.NoError(t, call(t, address, dial))
	principal.after(t, func() { principal.roots.put(rootsBlocks(renewed)) })
	agent.after(t, func() { agent.roots.put(rootsBlocks(renewed)) })
	require.NoError(t, call(t, address, dial))

	// And the old one is not trusted any more.
	agent.after(t, func() { agent.pair.put(pairBlocks(clientPair(t, old, "agent-a", pki.Validity{}))) })
	require.ErrorContains(t, call(t, address, dial), "refused our client certificate")
	principal.pair.put(certs.Blocks{Certificate: []byte("rubbish")})
	principal.log.await(t, "keeping the last good ones")
	agent.after(t, func() { agent.pair.put(pairBlocks(clientPair(t, renewed, "agent-a", pki.Validity{}))) })
	require.NoError(t, call(t, address, dial))
}

func TestTLSSessionsAreNotResumed(t *testing.T) {
	old, renewed := newCA(t, "old"), newCA(t, "new")
	principal := newEnd(t, serverPair(t, old, pki.Validity{}), old)
	pair, err := clientPair(t, old, "agent-a", pki.Validity{}).TLS()
	require.NoError(t, err)
	config := &tls.Config{
		Certificates: []tls.Certificate{pair}, InsecureSkipVerify: true, ServerName: "principal.test",
		ClientSessionCache: tls.NewLRUClientSessionCache(8),
	}
	listener, err := tls.Listen("tcp", "127.0.0.1:0", certs.ServerTLS(certs.ServerOptions{Source: principal.Source}))
	require.NoError(t, err)
	defer listener.Close()
	exchange := func() error {
		accepted := make(chan error, 1)
		go func() { accepted <- greet(listener) }()
		conn, err := tls.Dial("tcp", listener.Addr().String(), config)
		if err == nil {
			require.False(t, conn.ConnectionState().DidResume)
			_, err = io.ReadAll(conn)
			conn.Close()
		}
		return errors.Join(err, <-accepted)
	}
	require.NoError(t, exchange())
	require.NoError(t, exchange())
	principal.after(t, func() { principal.roots.put(rootsBlocks(renewed)) })
	require.Error(t, exchange(), "a session of before must not get around the CAs of now")
}

// greet accepts one connection and says one word.
func greet(listener net.Listener) error {
	conn, err := listener.Accept()
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = conn.Write([]byte("welcome"))
	return err
}

func TestInsecureSkipVerifyTrustsAnyServer(t *testing.T) {
	ca, stranger := newCA(t, "CA"), newCA(t, "stranger")
	principal := newEnd(t, serverPair(t, ca, pki.Validity{}), ca)
	agent := newEnd(t, clientPair(t, ca, "agent-a", pki.Validity{}), ca)
	address := serve(t, server(principal))

	agent.after(t, func() { agent.roots.put(rootsBlocks(stranger)) })
	require.Error(t, call(t, address, client(agent)))
	require.NoError(t, call(t, address, certs.ClientCredentials(certs.ClientOptions{Source: agent.Source, InsecureSkipVerify: true})))
}

// What a handshake accepted is asked about again when what is trusted has changed.
func TestVerifyClientAfterCAChange(t *testing.T) {
	first, second := newCA(t, "first"), newCA(t, "second")
	principal := newEnd(t, serverPair(t, first, pki.Validity{}), first)
	presented := func(pair pki.Pair) []*x509.Certificate {
		loaded, err := pair.TLS()
		require.NoError(t, err)
		return []*x509.Certificate{loaded.Leaf}
	}
	agent := presented(clientPair(t, first, "agent-a", pki.Validity{}))
	require.NoError(t, principal.VerifyClient(agent))
	require.ErrorContains(t, principal.VerifyClient(presented(clientPair(t, first, "agent-a", past()))), "expired at")
	require.ErrorContains(t, principal.VerifyClient(presented(serverPair(t, first, pki.Validity{}))), "cannot be used")
	require.Error(t, principal.VerifyClient(nil))

	principal.after(t, func() { principal.roots.put(rootsBlocks(first, second)) })
	require.NoError(t, principal.VerifyClient(agent))
	principal.after(t, func() { principal.roots.put(rootsBlocks(second)) })
	require.ErrorContains(t, principal.VerifyClient(agent),
		"client certificate CN=agent-a was issued by CN=first, which is none of the CAs trusted here (CN=second)")
	require.NoError(t, principal.VerifyClient(presented(clientPair(t, second, "agent-a", pki.Validity{}))))

	missing := run(t, certs.Options{Roots: &memory{}})
	require.ErrorContains(t, missing.VerifyClient(agent), "has not been read yet")
	rootless := run(t, certs.Options{Pair: newMemory(pairBlocks(serverPair(t, first, pki.Validity{})))}).ready(t)
	require.ErrorContains(t, rootless.VerifyClient(agent), "this side needs trusted CAs")
}

// After a CA was replaced by one of the same name, whoever reads the log must know which is meant.
func TestCAsOfOneNameAreToldApart(t *testing.T) {
	first, second := newCA(t, "CA"), newCA(t, "CA")
	principal := newEnd(t, serverPair(t, second, pki.Validity{}), second)
	loaded, err := clientPair(t, first, "agent-a", pki.Validity{}).TLS()
	require.NoError(t, err)
	err = principal.VerifyClient([]*x509.Certificate{loaded.Leaf})
	require.ErrorContains(t, err, fmt.Sprintf("none of the CAs trusted here (CN=CA), which has the same name and another key: trusted is the CA with the "+
		"SHA-256 fingerprint %x and the key ID %x, and the certificate's is %x: issue it",
		sha256.Sum256(second.Certificate().Raw), second.Certificate().SubjectKeyId, first.Certificate().SubjectKeyId))
}

func TestHandshakeWithoutCertificatesFails(t *testing.T) {
	ca := newCA(t, "CA")
	missing := run(t, certs.Options{Pair: &memory{}, Roots: newMemory(rootsBlocks(ca))})
	agent := newEnd(t, clientPair(t, ca, "agent-a", pki.Validity{}), ca)

	err := call(t, serve(t, certs.ServerCredentials(certs.ServerOptions{Source: missing.Source})), client(agent))
	require.ErrorContains(t, err, "the other side had a problem of its own, maybe no certificate yet")
	require.Contains(t, missing.log.await(t, "TLS handshake failed"), "reason=no_material")

	err = call(t, "127.0.0.1:1", certs.ClientCredentials(certs.ClientOptions{Source: missing.Source}))
	require.Error(t, err)

	rootless := run(t, certs.Options{Pair: newMemory(pairBlocks(serverPair(t, ca, pki.Validity{})))}).ready(t)
	require.Error(t, call(t, serve(t, certs.ServerCredentials(certs.ServerOptions{Source: rootless.Source})), client(agent)))
	require.Contains(t, rootless.log.await(t, "TLS handshake failed"), "a server needs a certificate and trusted CAs")
}

func TestFailedHandshakeLogIsRateLimited(t *testing.T) {
	ca := newCA(t, "CA")
	principal := newEnd(t, serverPair(t, ca, pki.Validity{}), ca)
	transport := server(principal)
	const flood = 100
	for range flood {
		near, far := net.Pipe()
		go func() {
			_, _ = near.Write([]byte("GET / HTTP/1.1\r\n"))
			_ = near.Close()
		}()
		_, _, err := transport.ServerHandshake(far)
		require.Error(t, err)
	}
	require.Equal(t, float64(flood), principal.value(t, failures, "test", "no_tls"))
	require.Less(t, len(principal.log.lines), flood/2)
	require.NotEmpty(t, principal.log.lines)
}

func TestExpiredCAIsNamed(t *testing.T) {
	expired, err := pki.NewCA(pki.CAOptions{CommonName: "ended", Validity: past()})
	require.NoError(t, err)
	ca := newCA(t, "CA")
	pair, err := expired.IssueClient(pki.ClientOptions{CommonName: "agent-a", Validity: pki.Validity{
		NotBefore: expired.Certificate().NotBefore, NotAfter: expired.Certificate().NotAfter.Add(-time.Minute),
	}})
	require.NoError(t, err)
	principal := newEnd(t, serverPair(t, ca, pki.Validity{}), expired)
	agent := newEnd(t, pair, ca)
	require.ErrorContains(t, call(t, serve(t, server(principal)), client(agent)), "expired at")
	require.Contains(t, principal.log.await(t, "TLS handshake failed"), "reason=expired")
}
