package crowd

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"strings"
	"sync"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/pki"
)

// How xds calls what it serves, as Envoy asks for it: see docs/xds.md.
const (
	virtualHosts = "type.googleapis.com/envoy.config.route.v3.VirtualHost"
	hostPrefix   = "agents/"
	domain       = ".agents.argocd-agent"
)

// follower subscribes to the routes of agents, as an Envoy does that has had a request for each.
type follower struct {
	stop context.CancelFunc
	conn *grpc.ClientConn
	done chan struct{}

	mu   sync.Mutex
	came map[string][]time.Time // when routes of agents came that lead to a principal. Guarded by mu
	all  chan struct{}          // closed when each has one
	want int
}

// follow returns when it has a route to each of the agents.
func follow(ctx context.Context, ca *pki.CA, address string, agents []string) (*follower, error) {
	pair, err := ca.IssueClient(pki.ClientOptions{CommonName: "argocd-agent-kubeproxy"})
	if err != nil {
		return nil, err
	}
	certificate, err := pair.TLS()
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AddCert(ca.Certificate())
	secure := credentials.NewTLS(&tls.Config{Certificates: []tls.Certificate{certificate}, RootCAs: roots, MinVersion: tls.VersionTLS13})
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(secure), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20)))
	if err != nil {
		return nil, err
	}
	streaming, stop := context.WithCancel(ctx)
	f := &follower{stop: stop, conn: conn, done: make(chan struct{}), came: make(map[string][]time.Time), all: make(chan struct{}), want: len(agents)}
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(streaming)
	if err == nil {
		request := &discoveryv3.DeltaDiscoveryRequest{Node: &corev3.Node{Id: "bench", Cluster: "bench"}, TypeUrl: virtualHosts}
		for _, agent := range agents {
			request.ResourceNamesSubscribe = append(request.ResourceNamesSubscribe, hostPrefix+agent+domain)
		}
		err = stream.Send(request)
	}
	if err != nil {
		stop()
		_ = conn.Close() // it was of no use
		return nil, fmt.Errorf("xds: %w", err)
	}
	go func() {
		defer close(f.done)
		f.receive(stream)
	}()
	select {
	case <-f.all:
		return f, nil
	case <-f.done:
	case <-ctx.Done():
	}
	f.close()
	return nil, fmt.Errorf("xds: not all routes came: %w", ctx.Err())
}

// receive notes what comes, until the stream ends.
func (f *follower) receive(stream discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesClient) {
	for {
		response, err := stream.Recv()
		if err != nil {
			return
		}
		now := time.Now()
		for _, resource := range response.GetResources() {
			var host routev3.VirtualHost
			if resource.GetResource() == nil || resource.GetResource().UnmarshalTo(&host) != nil {
				continue
			}
			cluster := host.GetRoutes()[0].GetRoute().GetCluster()
			if strings.HasSuffix(cluster, "-first") { // of one principal, and not of any
				f.note(strings.TrimSuffix(strings.TrimPrefix(resource.GetName(), hostPrefix), domain), now)
			}
		}
		if stream.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: virtualHosts, ResponseNonce: response.GetNonce()}) != nil {
			return
		}
	}
}

func (f *follower) note(agent string, at time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.came[agent] = append(f.came[agent], at)
	if len(f.came) == f.want && len(f.came[agent]) == 1 {
		close(f.all)
	}
}

// cameAfter returns when the first route to an agent came after a time, and whether one has.
func (f *follower) cameAfter(agent string, since time.Time) (time.Time, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, at := range f.came[agent] {
		if at.After(since) {
			return at, true
		}
	}
	return time.Time{}, false
}

func (f *follower) close() {
	f.stop()
	<-f.done
	_ = f.conn.Close() // it only ever says that it was closed before
}
