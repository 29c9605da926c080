package main

import (
	"context"
	"crypto/rand"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"
	"k8s.io/client-go/kubernetes"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/logging"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/settings"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/authn"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/certs"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/follow"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/peers"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/tunnel"
)

// declarePeers declares how the principals of the hub find each other.
func (s *principalSettings) declarePeers(set *settings.Set) {
	set.String(&s.peers, "peers", "ARGOCD_PRINCIPAL_PEERS", "",
		"the other principals of the hub: service:NAME for the EndpointSlices of a headless Service in the namespace, dns:HOST:PORT for the addresses "+
			"of a name, or HOST:PORT with commas between several; this one may be among them; none if empty",
		func(text string) error {
			_, err := peers.ParseAddresses(text)
			return err
		})
}

// newRoster returns what this principal and the others hold.
func (s *principalSettings) newRoster() *peers.Roster {
	return peers.NewRoster(peers.Self{ID: rand.Text()[:12], Name: replicaName(s.podName)}, authn.ErrSuperseded)
}

// peerKeepAlive is how soon a principal that is gone without a word is noticed by the others.
const peerKeepAlive = 10 * time.Second

// follow returns what follows the other principals.
func (s *principalSettings) follow(client kubernetes.Interface, e *entrance, roster *peers.Roster, left func(), registry prometheus.Registerer, logger *slog.Logger,
) (*peers.Peers, error) {
	addresses, err := peers.ParseAddresses(s.peers)
	if err != nil {
		return nil, err
	}
	logger = logging.Component(logger, "peers")
	secure := certs.ClientCredentials(certs.ClientOptions{Source: e.certificates, Policy: s.policy, Server: e.isPeer})
	return peers.New(peers.Options{
		Roster: roster, Left: left, Addresses: func(ctx context.Context, report func([]string)) {
			all := report
			report = func(addresses []string) { all(s.withoutOwn(addresses)) }
			addresses.Follow(ctx, func(ctx context.Context, service, port string, report func([]string)) {
				follow.Endpoints(ctx, client.DiscoveryV1().EndpointSlices(s.namespace), service, port, report)
			}, report, logger)
		},
		Dial: func(address string) (*grpc.ClientConn, error) {
			return grpc.NewClient(address, append(tunnel.DialOptions(), grpc.WithTransportCredentials(secure),
				grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: peerKeepAlive, Timeout: peerKeepAlive}))...)
		},
		Prefix: "argocd_principal", Registerer: registry, Logger: logger,
	}), nil
}

// withoutOwn leaves out where this principal itself listens. Others tell it by its ID that they are itself; behind a sidecar it never gets to ask,
// since it does not dial itself by the sidecar, and takes connections of that alone.
func (s *principalSettings) withoutOwn(addresses []string) []string {
	interfaces, err := net.InterfaceAddrs()
	if err != nil {
		return addresses
	}
	return slices.DeleteFunc(slices.Clone(addresses), func(address string) bool {
		host, port, err := net.SplitHostPort(address)
		return err == nil && port == strconv.Itoa(s.listenPort) && slices.ContainsFunc(interfaces, func(own net.Addr) bool {
			network, ok := own.(*net.IPNet)
			return ok && network.IP.Equal(net.ParseIP(host))
		})
	})
}

// isPeer returns nil if a server that presents these certificates is a principal of the hub.
func (e *entrance) isPeer(presented []*x509.Certificate) error {
	proof := identity.Certified(presented)
	switch name := e.identify.ComponentOf(proof); {
	case name == "":
		return fmt.Errorf("%s is of no component of the hub: name the principals as NAME=%s in --hub-components", proof, peers.Target)
	case !slices.Contains(e.identify.TargetsOf(name), peers.Target):
		return errors.New(name + " is no principal: name the principals as NAME=" + peers.Target + " in --hub-components")
	}
	return nil
}
