package ca

import (
	"bytes"
	"context"
	"crypto/x509"
	"fmt"
	"net"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/certificate"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/cluster"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/certs"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/certs/secret"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/pki"
)

// Certificate says which certificate is wanted, and where.
type Certificate struct {
	SecretName string
	CommonName string
	// Caller is the agent whose caller the holder is, instead of a common name.
	Caller identity.Agent
	// Names and Addresses are those by which clients reach a server; a client's certificate has none.
	Names     []string
	Addresses []net.IP
	// Peer says that the server is a client of others like it.
	Peer bool
}

// as returns what the holder does with the certificate.
func (c Certificate) as() x509.ExtKeyUsage {
	if len(c.Names)+len(c.Addresses) > 0 {
		return x509.ExtKeyUsageServerAuth
	}
	return x509.ExtKeyUsageClientAuth
}

// Issue issues a certificate into its Secret, unless there is a good one.
func (a *CA) Issue(ctx context.Context, into *cluster.Client, c Certificate, n New) (cluster.Result, error) {
	return into.Put(ctx, cluster.Change{
		Name: c.SecretName, Type: corev1.SecretTypeTLS, Replace: n.Replace, Flag: "--upsert",
		Differs: func(existing *corev1.Secret) []string {
			pair, err := PairIn(existing.Data)
			if err != nil {
				return []string{err.Error()}
			}
			return a.Differs(pair, c)
		},
		Renew: func(existing *corev1.Secret) bool { return n.Renew && a.issued(existing, c) },
		Write: func(s *corev1.Secret) error {
			if n.Renew && !n.Replace {
				c = c.withNames(s)
			}
			pair, err := a.Sign(c, n)
			if err != nil {
				return err
			}
			writePair(s, pair, a.Trusted.PEM)
			return nil
		},
		Describe: describePair,
	})
}

// issued reports whether a Secret has a certificate of this CA, or of an older one that is trusted still, for the same use.
func (a *CA) issued(s *corev1.Secret, c Certificate) bool {
	chain, err := ReadPair(s.Data)
	return err == nil && len(a.Trusted.Use(c.as()).Trust(chain, time.Now())) == 0
}

// withNames returns the certificate of a server with the names that it has in a Secret besides: who still uses one of them goes on.
func (c Certificate) withNames(s *corev1.Secret) Certificate {
	chain, err := ReadPair(s.Data)
	if err != nil || c.as() != x509.ExtKeyUsageServerAuth {
		return c
	}
	c.Names = append(slices.Clone(c.Names), without(chain[0].DNSNames, c.Names)...)
	c.Addresses = slices.Clone(c.Addresses)
	for _, address := range chain[0].IPAddresses {
		if !slices.ContainsFunc(c.Addresses, address.Equal) {
			c.Addresses = append(c.Addresses, address)
		}
	}
	return c
}

// IssueAlone issues a certificate by a CA of its own, whose key is thrown away: for a server on a cluster where the hub's CA has no key, and whose
// clients read the CA from the same Secret. Neither can issue anything else then.
func IssueAlone(ctx context.Context, into *cluster.Client, c Certificate, n New) (cluster.Result, error) {
	return into.Put(ctx, cluster.Change{
		Name: c.SecretName, Type: corev1.SecretTypeTLS, Replace: n.Replace, Flag: "--upsert",
		Differs: func(existing *corev1.Secret) []string {
			pair, err := PairIn(existing.Data)
			if err != nil {
				return []string{err.Error()}
			}
			trusted, err := certs.ParseCertificates(existing.Data[secret.CAKey])
			if err != nil {
				return []string{fmt.Sprintf("its CA (%s): %v", secret.CAKey, err)}
			}
			its := CA{Trusted: Trusted{Certificates: trusted, Where: into.Secret(c.SecretName)}}
			return its.Differs(pair, c)
		},
		Write: func(s *corev1.Secret) error {
			issuer, err := pki.NewCA(pki.CAOptions{CommonName: c.CommonName + " on its own", Validity: n.validity(), Key: n.Key})
			if err != nil {
				return err
			}
			own := CA{CA: issuer}
			pair, err := own.Sign(c, n)
			if err != nil {
				return err
			}
			writePair(s, pair, issuer.PEM().Certificate)
			return nil
		},
		Describe: describePair,
	})
}

// Copy puts a certificate that another CA has issued into a Secret, with that CA.
func Copy(ctx context.Context, into *cluster.Client, name string, pair pki.Pair, cas []byte, replace bool) (cluster.Result, error) {
	return into.Put(ctx, cluster.Change{
		Name: name, Type: corev1.SecretTypeTLS, Replace: replace, Flag: "--upsert",
		Differs: func(existing *corev1.Secret) []string {
			if bytes.Equal(existing.Data[secret.CertificateKey], pair.Certificate) && bytes.Equal(existing.Data[secret.PrivateKeyKey], pair.Key) &&
				bytes.Equal(existing.Data[secret.CAKey], cas) {
				return nil
			}
			return []string{"it has another certificate"}
		},
		Write: func(s *corev1.Secret) error {
			writePair(s, pair, cas)
			return nil
		},
		Describe: describePair,
	})
}

// Caller is the certificate by which Argo CD proves to kubeproxy that it may reach an agent. It is in no Secret of its own.
func Caller(agent string) Certificate { return Certificate{Caller: identity.Agent(agent)} }

// Sign issues a certificate, and returns it only.
func (a *CA) Sign(c Certificate, n New) (pki.Pair, error) {
	if c.as() == x509.ExtKeyUsageClientAuth {
		return a.IssueClient(pki.ClientOptions{CommonName: c.CommonName, Caller: c.Caller, Validity: n.validity(), Key: n.Key})
	}
	return a.IssueServer(pki.ServerOptions{
		CommonName: c.CommonName, Names: c.Names, Addresses: c.Addresses, Peer: c.Peer, Validity: n.validity(), Key: n.Key,
	})
}

// PairIn returns what a Secret's data has of a certificate and its key.
func PairIn(data map[string][]byte) (pki.Pair, error) {
	blocks, err := secret.PairBlocks(data)
	return pki.Pair{Certificate: blocks.Certificate, Key: blocks.Key}, err
}

// Chain returns the certificates of a pair, its leaf first.
func Chain(pair pki.Pair) ([]*x509.Certificate, error) {
	if _, err := pair.TLS(); err != nil {
		return nil, err
	}
	return certs.ParseCertificates(pair.Certificate)
}

// ReadPair returns the certificates of a Secret's data, the leaf first.
func ReadPair(data map[string][]byte) ([]*x509.Certificate, error) {
	pair, err := PairIn(data)
	if err != nil {
		return nil, err
	}
	return Chain(pair)
}

// Differs says why an existing pair is not the certificate that is wanted. It may have more names, and it may expire soon.
func (a *CA) Differs(pair pki.Pair, c Certificate) []string {
	chain, err := Chain(pair)
	if err != nil {
		return []string{err.Error()}
	}
	var differences []string
	wanted := slices.Clone(c.Names)
	common := chain[0].Subject.CommonName
	switch {
	case c.Caller != "":
		if problem := CallerProblem(chain[0], string(c.Caller), false); problem != "" {
			differences = append(differences, problem)
		}
	case common != c.CommonName:
		differences = append(differences, fmt.Sprintf("its common name is %s, not %s", common, c.CommonName))
	}
	for _, address := range c.Addresses {
		wanted = append(wanted, address.String())
	}
	if missing := without(wanted, certificate.Names(chain[0])); len(missing) > 0 {
		differences = append(differences, "it is not for "+certificate.List(missing))
	}
	if now := time.Now(); now.After(chain[0].NotAfter) || now.Before(chain[0].NotBefore) {
		differences = append(differences, certificate.Dates(chain[0], now)...)
	}
	return append(differences, a.Trusted.Use(c.as()).Trust(chain, time.Now())...)
}

// without returns the texts that are not among others.
func without(texts, others []string) []string {
	return slices.DeleteFunc(slices.Clone(texts), func(text string) bool { return slices.Contains(others, text) })
}

// CallerProblem says why a certificate is not that of a caller of an agent, empty if it is. named says that a bearer token, or the path of
// the address, names the agent: then it may also be that of a caller of several.
func CallerProblem(leaf *x509.Certificate, agent string, named bool) string {
	caller, err := identity.CallerOf(identity.Certified([]*x509.Certificate{leaf}))
	switch {
	case err == nil && string(caller.Agent) == agent, named && err == nil && caller.Agent == "":
		return ""
	case err == nil && caller.Agent != "":
		return fmt.Sprintf("it is that of a caller of agent %s", caller.Agent)
	case named && len(leaf.URIs) == 1: // one that kubeproxy's setting --callers has
		return ""
	case leaf.Subject.CommonName == agent:
		return fmt.Sprintf("its common name %s is the agent's own identity: kubeproxy refuses it, and who reads it can pass for the agent", agent)
	default:
		return fmt.Sprintf("it has not the URI %s", identity.Caller{TrustDomain: identity.CallerTrustDomain, Agent: identity.Agent(agent)}.URI())
	}
}
