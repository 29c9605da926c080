package lab

import (
	"context"
	"net"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/envoy"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/toolset"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/pki"
)

// StartEnvoy runs an Envoy, and returns when it serves.
func (l *Lab) StartEnvoy(ctx context.Context, options envoy.Options) (*envoy.Envoy, error) {
	return envoy.Start(ctx, l.Host, l.Tools.Program(toolset.Envoy), options)
}

// ServerIdentity is what an Envoy of this machine shows to its clients.
func (l *Lab) ServerIdentity() (*envoy.Identity, error) {
	pair, err := l.CA.IssueServer(pki.ServerOptions{Names: []string{"localhost"}, Addresses: []net.IP{net.IPv4(127, 0, 0, 1)}})
	if err != nil {
		return nil, err
	}
	return &envoy.Identity{Certificate: pair.Certificate, Key: pair.Key, CA: l.CA.PEM().Certificate}, nil
}

// ClientIdentity is what an Envoy with that SPIFFE ID shows to its backend.
func (l *Lab) ClientIdentity(spiffeID string) (*envoy.Identity, error) {
	pair, err := l.CA.IssueClient(pki.ClientOptions{SPIFFEID: spiffeID})
	if err != nil {
		return nil, err
	}
	return &envoy.Identity{Certificate: pair.Certificate, Key: pair.Key, CA: l.CA.PEM().Certificate}, nil
}

// Behind is a principal as those see it who reach it by a proxy.
func (p *Principal) Behind(proxy *envoy.Envoy) *Principal {
	behind := *p
	behind.Address = proxy.Address
	return &behind
}
