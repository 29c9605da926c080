package agents

import (
	"bytes"
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/ca"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/place"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/pki"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/argocd"
)

// Access is where the certificates of a cluster Secret come from.
type Access interface {
	// Get returns them.
	Get(agent string) (argocd.ClusterTLS, error)
	// Differs says why those that are there will not do.
	Differs(there argocd.ClusterTLS, agent string) []string
}

// Issued are certificates that the hub's CA issues.
type Issued struct {
	CA  *ca.CA
	New ca.New
}

// Get issues a client certificate with the agent's name.
func (i Issued) Get(agent string) (argocd.ClusterTLS, error) {
	pair, err := i.CA.Client(agent, i.New)
	if err != nil {
		return argocd.ClusterTLS{}, err
	}
	return argocd.ClusterTLS{Certificate: pair.Certificate, Key: pair.Key, CAData: i.CA.Trusted.PEM}, nil
}

// Differs says why certificates are not such as the CA would issue now.
func (i Issued) Differs(there argocd.ClusterTLS, agent string) []string {
	differences := i.CA.Differs(pki.Pair{Certificate: there.Certificate, Key: there.Key}, ca.Certificate{CommonName: agent})
	if !bytes.Equal(there.CAData, i.CA.Trusted.PEM) {
		differences = append(differences, "its CA (caData) is not what is in "+i.CA.Trusted.Where)
	}
	return differences
}

// Given are certificates that somebody else issued.
type Given struct {
	TLS argocd.ClusterTLS
	// Where names the Secrets that they are from.
	Where string
}

// Source is a Secret that a person names.
type Source struct {
	Place *place.Place
	Name  string
}

// get returns the Secret, which must be there.
func (s Source) get(ctx context.Context) (*corev1.Secret, error) {
	found, err := s.Place.Get(ctx, s.Name)
	if err == nil && found == nil {
		err = fmt.Errorf("%s: not found", s)
	}
	return found, err
}

// String names the Secret as people would look for it.
func (s Source) String() string { return s.Place.Secret(s.Name) }

// FromSecrets reads a certificate and its key from one Secret, and the CAs that the resource proxy's certificate
// comes from out of another, or the same.
func FromSecrets(ctx context.Context, pairSource, rootsSource Source) (Given, error) {
	found, err := pairSource.get(ctx)
	if err != nil {
		return Given{}, err
	}
	pair, err := ca.PairOf(found.Data)
	if err == nil {
		_, err = ca.Chain(pair)
	}
	if err != nil {
		return Given{}, fmt.Errorf("%s: %w", pairSource, err)
	}
	if found, err = rootsSource.get(ctx); err != nil {
		return Given{}, err
	}
	trusted, err := ca.ReadTrusted(found, rootsSource.Place)
	if err != nil {
		return Given{}, err
	}
	return Given{
		TLS:   argocd.ClusterTLS{Certificate: pair.Certificate, Key: pair.Key, CAData: trusted.PEM},
		Where: fmt.Sprintf("%s and %s", pairSource, rootsSource),
	}, nil
}

// Get returns them for any agent.
func (g Given) Get(string) (argocd.ClusterTLS, error) { return g.TLS, nil }

// Differs says whether others are there.
func (g Given) Differs(there argocd.ClusterTLS, _ string) []string {
	if bytes.Equal(there.Certificate, g.TLS.Certificate) && bytes.Equal(there.Key, g.TLS.Key) && bytes.Equal(there.CAData, g.TLS.CAData) {
		return nil
	}
	return []string{"its certificates are not those of " + g.Where}
}
