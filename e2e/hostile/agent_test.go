package hostile_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	syncv1 "github.com/argocd-agent-mesh/argocd-agent-mesh/api/sync/v1"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/pki"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/wire"
)

// dial connects to the real principal with a certificate of the lab's CA.
func dial(ca *pki.CA, address string, options pki.ClientOptions) (*grpc.ClientConn, error) {
	pair, err := ca.IssueClient(options)
	if err != nil {
		return nil, err
	}
	certificate, err := pair.TLS()
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	pool.AddCert(ca.Certificate())
	return grpc.NewClient(address, grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{
		Certificates: []tls.Certificate{certificate}, RootCAs: pool, MinVersion: tls.VersionTLS13,
	})))
}

// agentHello is what an agent says first that is configured as the lab's principal is.
func agentHello(mode string) wire.Hello {
	hello := wire.NewHello()
	hello.Mode, hello.Mapping = mode, "namespace"
	return hello
}

// connect is an agent's first words, and returns the session, or why the principal wants none.
func connect(ctx context.Context, conn *grpc.ClientConn, hello wire.Hello) (*session, error) {
	ctx, cancel := context.WithCancel(ctx)
	stream, err := syncv1.NewSyncClient(conn).Connect(ctx)
	if err != nil {
		cancel()
		return nil, err
	}
	s := newSession(stream, cancel, "/agent")
	if err := s.stream.SendHello(hello); err != nil {
		cancel()
		return nil, s.stream.Ended()
	}
	if _, err := s.stream.RecvHello(ctx); err != nil {
		cancel()
		return nil, err
	}
	s.begin()
	return s, nil
}
