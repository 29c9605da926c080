package fleet

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/agent/dialer"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/envoy"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/pki"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/xfcc"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/converge"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/facets"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/mapping"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/wire"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/tunnel"
)

// portsPerAddress is how many agents call from one address of loopback's, which has some 28,000 ports to call from. After a
// restart those of the connections before are not free yet.
const (
	portsPerAddress = 5000
	addresses       = 250
)

// bufferSize is that of gRPC's buffers. An agent that says little needs no more, and there are thousands.
const bufferSize = 4 << 10

// agent is a managed agent of a fleet.
type agent struct {
	name         string
	way          *way
	peer         *converge.Peer
	dialer       *dialer.Dialer
	applications *memory
	statuses     *memory

	epoch int // in which it connected last. Guarded by Fleet.mu
}

func (f *Fleet) newAgent(o Options, index int, name string) (*agent, error) {
	secure, proof, err := o.proof(name)
	if err != nil {
		return nil, err
	}
	a := &agent{name: name, way: newWay(index, append([]string{o.Address}, o.Others...)), applications: &memory{changed: f.held}, statuses: &memory{}}
	replicas := map[converge.Facet]converge.ReplicaConfig{facets.Application: {Replica: a.applications}}
	for _, facet := range []converge.Facet{facets.Intent, facets.AppProject, facets.Repository, facets.RepoCreds, facets.GPGKeys} {
		replicas[facet] = converge.ReplicaConfig{Replica: &memory{}}
	}
	a.peer = converge.NewPeer(converge.Options{
		Sources:  map[converge.Facet]converge.SourceConfig{facets.Status: {Source: a.statuses, GuardExempt: true}},
		Replicas: replicas, Observer: silent{}, Workers: f.workers,
	})
	hello := wire.NewHello()
	hello.Mode, hello.Mapping, hello.Heartbeat = string(facets.Managed), mapping.ByNamespace{}.Name(), o.Heartbeat.Milliseconds()
	logger := slog.New(slog.DiscardHandler)
	a.dialer = dialer.New(dialer.Options{
		Address: o.Address, Credentials: secure, KeepAlive: o.KeepAlive, Peer: a.peer, Hello: func(context.Context) wire.Hello { return hello }, OnHello: f.greeted(a, o),
		Tunnel: tunnel.NewServer(logger), Renewed: func() <-chan struct{} { return nil },
		Dial: append(proof,
			grpc.WithContextDialer(a.way.dial), grpc.WithReadBufferSize(bufferSize), grpc.WithWriteBufferSize(bufferSize)),
		Registerer: prometheus.NewRegistry(), Logger: logger,
	})
	return a, nil
}

// proof is how an agent proves who it is: by its credentials, or by what a sidecar adds to its streams.
func (o Options) proof(name string) (credentials.TransportCredentials, []grpc.DialOption, error) {
	who := pki.ClientOptions{CommonName: name}
	if o.SPIFFEID != nil {
		who = pki.ClientOptions{SPIFFEID: o.SPIFFEID(name)}
	}
	pair, err := o.CA.IssueClient(who)
	if err != nil {
		return nil, nil, err
	}
	certificate, err := pair.TLS()
	if err != nil {
		return nil, nil, err
	}
	if o.Sidecar {
		return insecure.NewCredentials(), []grpc.DialOption{forwarding(envoy.ClientCertHeader(certificate.Leaf, o.WithCertificate))}, nil
	}
	roots := x509.NewCertPool()
	roots.AddCert(o.CA.Certificate())
	return credentials.NewTLS(&tls.Config{
		Certificates: []tls.Certificate{certificate}, RootCAs: roots, MinVersion: tls.VersionTLS13,
		InsecureSkipVerify: o.SPIFFEID != nil, //nolint:gosec // what it costs the principal is measured, on loopback
	}), nil, nil
}

// forwarding adds a header x-forwarded-client-cert to each stream.
func forwarding(header string) grpc.DialOption {
	return grpc.WithChainStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, open grpc.Streamer,
		options ...grpc.CallOption,
	) (grpc.ClientStream, error) {
		return open(metadata.AppendToOutgoingContext(ctx, xfcc.Header, header), desc, conn, method, options...)
	})
}

// report gives an Application a status.
func (a *agent) report(application string, status json.RawMessage) error {
	payload, err := json.Marshal(map[string]json.RawMessage{"status": status})
	if err != nil {
		return fmt.Errorf("status of %s: %w", application, err)
	}
	key := converge.Key(application)
	uid := a.applications.Held(key).UID
	if uid == "" {
		return fmt.Errorf("status of %s: agent %s has no such Application", application, a.name)
	}
	a.statuses.put(key, converge.Object{State: converge.State{UID: uid, Version: converge.VersionOf(payload)}, Payload: payload})
	a.peer.Changed(facets.Status, key)
	return nil
}
