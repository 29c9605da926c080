package agents

import (
	"bytes"
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/ca"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/cluster"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/pki"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/argocd"
)

// Access is where the certificates of a cluster Secret come from.
type Access interface {
	// Get returns them.
	Get(agent string) (argocd.ClusterTLS, error)
	// Differs says why existing ones are not as wanted.
	Differs(existing argocd.ClusterTLS, agent string) []string
	// Server returns the address at which Argo CD reaches the agent by them, behind the resource proxy's.
	Server(proxy, agent string) string
}

// Sidecar is no certificate: the sidecar of Argo CD proves who it is.
type Sidecar struct{}

// Get returns nothing.
func (Sidecar) Get(string) (argocd.ClusterTLS, error) { return argocd.ClusterTLS{}, nil }

// Differs says what has to go.
func (Sidecar) Differs(existing argocd.ClusterTLS, _ string) []string {
	if len(existing.Certificate)+len(existing.Key) == 0 {
		return nil
	}
	return []string{"it has a client certificate, and is to have none"}
}

// Server is without TLS, which the sidecar adds.
func (Sidecar) Server(proxy, agent string) string { return argocd.ClusterServerBySidecar(proxy, agent) }

// Issued are certificates that the hub's CA issues.
type Issued struct {
	CA  *ca.CA
	New ca.New
}

// Get issues the certificate of a caller of the agent, which is not the agent's own.
func (i Issued) Get(agent string) (argocd.ClusterTLS, error) {
	pair, err := i.CA.Sign(ca.Caller(agent), i.New)
	if err != nil {
		return argocd.ClusterTLS{}, err
	}
	return argocd.ClusterTLS{Certificate: pair.Certificate, Key: pair.Key, CAData: i.CA.Trusted.PEM}, nil
}

// Differs says why certificates are not such as the CA would issue now.
func (i Issued) Differs(existing argocd.ClusterTLS, agent string) []string {
	differences := i.CA.Differs(pki.Pair{Certificate: existing.Certificate, Key: existing.Key}, ca.Caller(agent))
	if !bytes.Equal(existing.CAData, i.CA.Trusted.PEM) {
		differences = append(differences, "its CA (caData) is not what is in "+i.CA.Trusted.Where)
	}
	return differences
}

// Server is where the resource proxy asks for the certificate.
func (Issued) Server(proxy, agent string) string { return argocd.ClusterServer(proxy, agent) }

// External are certificates that another CA issued.
type External struct {
	TLS argocd.ClusterTLS
	// Where names the Secrets that they are from.
	Where string
}

// Source is a Secret that the user names.
type Source struct {
	Place *cluster.Client
	Name  string
}

// get returns the Secret, which must exist.
func (s Source) get(ctx context.Context) (*corev1.Secret, error) {
	found, err := s.Place.Get(ctx, s.Name)
	if err == nil && found == nil {
		err = fmt.Errorf("%s: not found", s)
	}
	return found, err
}

// String returns the Secret's namespace, name and cluster.
func (s Source) String() string { return s.Place.Secret(s.Name) }

// FromSecrets reads a certificate and its key from one Secret, and the CAs that the resource proxy's certificate
// comes from out of another, or the same.
func FromSecrets(ctx context.Context, pairSource, rootsSource Source) (External, error) {
	found, err := pairSource.get(ctx)
	if err != nil {
		return External{}, err
	}
	pair, err := ca.PairIn(found.Data)
	if err == nil {
		_, err = ca.Chain(pair)
	}
	if err != nil {
		return External{}, fmt.Errorf("%s: %w", pairSource, err)
	}
	if found, err = rootsSource.get(ctx); err != nil {
		return External{}, err
	}
	trusted, err := ca.ReadTrusted(found, rootsSource.Place)
	if err != nil {
		return External{}, err
	}
	return External{
		TLS:   argocd.ClusterTLS{Certificate: pair.Certificate, Key: pair.Key, CAData: trusted.PEM},
		Where: fmt.Sprintf("%s and %s", pairSource, rootsSource),
	}, nil
}

// Get returns them for any agent.
func (g External) Get(string) (argocd.ClusterTLS, error) { return g.TLS, nil }

// Server is where the resource proxy asks for the certificate.
func (External) Server(proxy, agent string) string { return argocd.ClusterServer(proxy, agent) }

// Differs says whether the existing ones are others.
func (g External) Differs(existing argocd.ClusterTLS, _ string) []string {
	if bytes.Equal(existing.Certificate, g.TLS.Certificate) && bytes.Equal(existing.Key, g.TLS.Key) && bytes.Equal(existing.CAData, g.TLS.CAData) {
		return nil
	}
	return []string{"its certificates are not those of " + g.Where}
}
