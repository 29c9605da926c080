package registration

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/certs"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/certs/secret"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/argocd"
)

// shared is a certificate with its key. Whether it may be shared now is for check to say.
type shared struct {
	tls   argocd.ClusterTLS
	chain []*x509.Certificate
}

// read returns what a Secret has, or why it can never be used.
func read(data map[string][]byte) (*shared, error) {
	pair, err := secret.PairBlocks(data)
	if err != nil {
		return nil, err
	}
	if _, err := tls.X509KeyPair(pair.Certificate, pair.Key); err != nil {
		return nil, fmt.Errorf("its keys %s and %s: %w", secret.CertificateKey, secret.PrivateKeyKey, err)
	}
	if _, err := certs.ParseCertificates(data[secret.CAKey]); err != nil {
		return nil, fmt.Errorf("its key %s, of the CA that kubeproxy's certificate comes from: %w", secret.CAKey, err)
	}
	chain, err := certs.ParseCertificates(pair.Certificate)
	if err != nil {
		return nil, fmt.Errorf("its key %s: %w", secret.CertificateKey, err)
	}
	leaf := chain[0]
	anything := slices.Contains(leaf.ExtKeyUsage, x509.ExtKeyUsageAny) || len(leaf.ExtKeyUsage)+len(leaf.UnknownExtKeyUsage) == 0
	if leaf.IsCA || !anything && !slices.Contains(leaf.ExtKeyUsage, x509.ExtKeyUsageClientAuth) {
		return nil, errors.New("its certificate is not one of a client: issue it with the usage client auth")
	}
	return &shared{argocd.ClusterTLS{Certificate: pair.Certificate, Key: pair.Key, CAData: data[secret.CAKey]}, chain}, nil
}

// end is when the first certificate of the chain ends.
func (c *shared) end() time.Time {
	end := c.chain[0].NotAfter
	for _, further := range c.chain[1:] {
		if further.NotAfter.Before(end) {
			end = further.NotAfter
		}
	}
	return end
}

// check returns why a certificate may not be shared now. Whoever reads a cluster Secret has the key: it must not be that of an agent, or of
// a component, at the principal.
func (s *Source) check(c *shared) error {
	proof := identity.Certified(c.chain)
	if len(proof.URIs) != 1 || !strings.HasPrefix(proof.URIs[0], "spiffe://") {
		return errors.New("its certificate has no SPIFFE ID, by which kubeproxy would know it: issue it with one URI, such as " +
			"spiffe://argocd-agent/self-registered, and let it reach agents by kubeproxy's setting --callers")
	}
	if agent, err := s.options.Identify.AgentOf(proof); err == nil {
		return fmt.Errorf("its certificate is agent %s's by the setting --auth, and whoever reads a cluster Secret could be that agent: "+
			"issue it without a common name", agent)
	}
	if component := s.options.Identify.ComponentOf(proof); component != "" {
		return fmt.Errorf("its certificate is that of component %s: issue another", component)
	}
	switch now, begin, end := time.Now(), c.chain[0].NotBefore, c.end(); {
	case now.Before(begin):
		return fmt.Errorf("its certificate is valid from %s on: compare the clocks", begin.UTC().Format(time.RFC3339))
	case !now.Before(end):
		return fmt.Errorf("its certificate has expired on %s: issue another", end.UTC().Format(time.RFC3339))
	}
	return nil
}
