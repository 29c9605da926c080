package hostile_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	syncv1 "github.com/argocd-agent-mesh/argocd-agent-mesh/api/sync/v1"
	tunnelv1 "github.com/argocd-agent-mesh/argocd-agent-mesh/api/tunnel/v1"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/pki"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/wire"
)

// hubUID is what the lying principal calls its hub.
const hubUID = "11111111-2222-3333-4444-555555555555"

// lyingPrincipal is a principal that the agents of the lab trust, and whose words are the rows'.
type lyingPrincipal struct {
	syncv1.UnimplementedSyncServer
	tunnelv1.UnimplementedTunnelServer

	address  string
	server   *grpc.Server
	sessions map[string]chan *session // by the agent's mode; each of capacity one
	agents   map[string]string        // by mode, the agent's name
}

// startLyingPrincipal listens on loopback, with a certificate of the CA.
func startLyingPrincipal(ctx context.Context, ca *pki.CA, agents map[string]string) (*lyingPrincipal, error) {
	pair, err := ca.IssueServer(pki.ServerOptions{Addresses: []net.IP{net.IPv4(127, 0, 0, 1)}})
	if err != nil {
		return nil, err
	}
	certificate, err := pair.TLS()
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	pool.AddCert(ca.Certificate())
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &lyingPrincipal{
		address: listener.Addr().String(), agents: agents, sessions: make(map[string]chan *session, len(agents)),
		server: grpc.NewServer(grpc.Creds(credentials.NewTLS(&tls.Config{
			Certificates: []tls.Certificate{certificate}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert,
			MinVersion: tls.VersionTLS13,
		}))),
	}
	for mode := range agents {
		p.sessions[mode] = make(chan *session, 1)
	}
	syncv1.RegisterSyncServer(p.server, p)
	tunnelv1.RegisterTunnelServer(p.server, p)
	go func() { _ = p.server.Serve(listener) }() // ends with the server
	return p, nil
}

// Connect says hello, as a principal does, and leaves the rest to the rows.
func (p *lyingPrincipal) Connect(stream syncv1.Sync_ConnectServer) error {
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	s := newSession(stream, cancel, "/principal")
	theirs, err := s.stream.RecvHello(ctx)
	if err != nil {
		return err
	}
	hello := theirs
	hello.Oldest, hello.Newest = wire.OldestProtocol, wire.NewestProtocol
	hello.Agent, hello.Hub, hello.Heartbeat = p.agents[theirs.Mode], hubUID, 0
	if err := s.stream.SendHello(hello); err != nil {
		return err
	}
	s.begin()
	select {
	case p.sessions[theirs.Mode] <- s:
	default:
		return fmt.Errorf("a %s agent connected twice", theirs.Mode)
	}
	select {
	case <-s.over:
	case <-ctx.Done():
	}
	return nil
}

// Listen asks for nothing.
func (p *lyingPrincipal) Listen(_ *tunnelv1.ListenRequest, stream tunnelv1.Tunnel_ListenServer) error {
	<-stream.Context().Done()
	return nil
}
