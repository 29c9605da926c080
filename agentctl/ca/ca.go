// Package ca keeps the CA that agents' and the hub's certificates come from in a Secret on the hub, and the
// certificates in Secrets where their programs look for them.
package ca

import (
	"context"
	"crypto/x509"
	"fmt"
	"os"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/certificate"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/cluster"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/certs"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/certs/secret"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/pki"
)

// SecretName is the Secret of the CA: in one place on the hub with its private key, elsewhere without.
const SecretName = "argocd-agent-ca"

// commonName is the issuer of all certificates.
const commonName = "argocd-agent-ca"

// create is the hint about a missing CA.
const create = "create it with: argocd-agentctl pki init"

// Trusted are the CAs that certificates are verified against: that of the hub and, while it is replaced, an older
// one beside it.
type Trusted struct {
	PEM          []byte
	Certificates []*x509.Certificate
	Where        string // the Secret or the file, for messages
}

// Use returns what a certificate is checked against: these CAs.
func (t Trusted) Use(as x509.ExtKeyUsage) certificate.Use {
	return certificate.Use{As: as, CAs: t.Certificates, Trusting: t.Where}
}

// Client is Use for the certificate of a client.
func (t Trusted) Client() certificate.Use { return t.Use(x509.ExtKeyUsageClientAuth) }

// CA is the hub's CA with its private key.
type CA struct {
	*pki.CA
	Trusted Trusted
}

// New are options of a new CA or certificate.
type New struct {
	// Replace allows to replace an existing one.
	Replace bool
	// Renew allows to replace a certificate of this CA that is not as wanted.
	Renew bool
	// Lifetime is how long it is valid; zero for the default.
	Lifetime time.Duration
	Key      pki.KeyKind
}

// validity returns the span of the lifetime.
func (n New) validity() pki.Validity {
	if n.Lifetime == 0 {
		return pki.Validity{}
	}
	return pki.Validity{NotAfter: time.Now().Add(n.Lifetime)}
}

// Init creates the hub's CA, unless there is a good one. Once it is replaced, certificates of the older one are refused.
func Init(ctx context.Context, hub *cluster.Client, n New) (cluster.Result, error) {
	result, err := hub.Put(ctx, cluster.Change{
		Name: SecretName, Type: corev1.SecretTypeTLS, Replace: n.Replace, Flag: "--force, and issue all certificates again",
		Differs: func(existing *corev1.Secret) []string {
			found, err := load(existing.Data)
			if err != nil {
				return []string{err.Error()}
			}
			if now := time.Now(); now.After(found.Certificate().NotAfter) {
				return certificate.Dates(found.Certificate(), now)
			}
			return nil
		},
		Write: func(s *corev1.Secret) error {
			made, err := pki.NewCA(pki.CAOptions{CommonName: commonName, Validity: n.validity(), Key: n.Key})
			if err != nil {
				return err
			}
			writePair(s, made.PEM(), nil)
			return nil
		},
		Describe: describePair,
	})
	if result.Outcome == cluster.Replaced {
		result.Notes = append(result.Notes, "certificates of the older CA are no longer trusted: issue all of them again, "+
			"by argocd-agentctl pki issue and argocd-agentctl agent create, with --upsert")
	}
	return result, err
}

// Delete deletes the CA: what it says of itself beside the principal, and last the pair, by which all could be made again. It
// returns what was deleted also with an error.
func Delete(ctx context.Context, place, hub *cluster.Client) ([]cluster.Result, error) {
	where := []*cluster.Client{hub, place}
	if place.Same(hub) {
		where = where[:1]
	}
	var deleted []cluster.Result
	for _, one := range where {
		found, err := one.Get(ctx, SecretName)
		if err != nil {
			return deleted, err
		}
		if found == nil {
			continue
		}
		about := "the CA's certificate"
		if len(found.Data[secret.PrivateKeyKey]) > 0 {
			about = "the CA with its private key"
		}
		result, err := one.Delete(ctx, found, about)
		if err != nil {
			return deleted, err
		}
		deleted = append(deleted, result)
	}
	if len(deleted) == 0 {
		return nil, fmt.Errorf("%s: not found: there is no CA", place.Secret(SecretName))
	}
	return deleted, nil
}

// HasKey reports whether the CA's private key is in that place.
func HasKey(ctx context.Context, place *cluster.Client) (bool, error) {
	found, err := place.Get(ctx, SecretName)
	return found != nil && len(found.Data[secret.PrivateKeyKey]) > 0, err
}

// Load returns the hub's CA.
func Load(ctx context.Context, hub *cluster.Client) (*CA, error) {
	found, err := get(ctx, hub)
	if err != nil {
		return nil, err
	}
	issuer, err := load(found.Data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", hub.Secret(SecretName), err)
	}
	issuer.Trusted.Where = hub.Secret(SecretName)
	return issuer, nil
}

// LoadTrusted returns the trusted CAs, for which no private key is needed.
func LoadTrusted(ctx context.Context, hub *cluster.Client) (Trusted, error) {
	found, err := get(ctx, hub)
	if err != nil {
		return Trusted{}, err
	}
	return ReadTrusted(found, hub)
}

// ReadTrusted returns the CAs in a Secret of the cluster.
func ReadTrusted(s *corev1.Secret, where *cluster.Client) (Trusted, error) {
	trusted, err := parseTrusted(s.Data)
	if err != nil {
		return Trusted{}, fmt.Errorf("%s: %w", where.Secret(s.Name), err)
	}
	trusted.Where = where.Secret(s.Name)
	return trusted, nil
}

// ReadTrustedFile returns the CAs in a file of PEM text.
func ReadTrustedFile(path string) (Trusted, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return Trusted{}, err
	}
	trusted, err := parseTrusted(map[string][]byte{secret.CAKey: text})
	if err != nil {
		return Trusted{}, fmt.Errorf("%s: %w", path, err)
	}
	for _, one := range trusted.Certificates {
		if !one.IsCA {
			return Trusted{}, fmt.Errorf("%s: the certificate of %q is not one of a CA", path, one.Subject)
		}
	}
	trusted.Where = path
	return trusted, nil
}

func get(ctx context.Context, hub *cluster.Client) (*corev1.Secret, error) {
	found, err := hub.Get(ctx, SecretName)
	if err == nil && found == nil {
		err = fmt.Errorf("%s: not found: %s", hub.Secret(SecretName), create)
	}
	return found, err
}

// load reads a CA from the data of its Secret.
func load(data map[string][]byte) (*CA, error) {
	trusted, err := parseTrusted(data)
	if err != nil {
		return nil, err
	}
	if len(data[secret.PrivateKeyKey]) == 0 {
		return nil, fmt.Errorf("it has no private key (%s), as on a spoke, so nothing can be issued with it: is this the hub, and is the key elsewhere on it (--ca-namespace)? "+
			"If another CA issues certificates, see --tls-from-secret of argocd-agentctl agent create", secret.PrivateKeyKey)
	}
	issuer, err := pki.LoadCA(data[secret.CertificateKey], data[secret.PrivateKeyKey])
	if err != nil {
		return nil, err
	}
	return &CA{CA: issuer, Trusted: trusted}, nil
}

// parseTrusted reads trusted CAs from the data of a Secret.
func parseTrusted(data map[string][]byte) (Trusted, error) {
	blocks, err := secret.RootsBlocks(data)
	if err != nil {
		return Trusted{}, err
	}
	certificates, err := certs.ParseCertificates(blocks.CAs)
	if err != nil {
		return Trusted{}, fmt.Errorf("trusted CAs: %w", err)
	}
	return Trusted{PEM: blocks.CAs, Certificates: certificates}, nil
}

// writePair puts a certificate and its key into a Secret and, for a program that has one folder for both, the CAs.
func writePair(s *corev1.Secret, pair pki.Pair, cas []byte) {
	s.Data[secret.CertificateKey], s.Data[secret.PrivateKeyKey] = pair.Certificate, pair.Key
	delete(s.Data, secret.CAKey)
	if cas != nil {
		s.Data[secret.CAKey] = cas
	}
}

// describePair says in a few words what the certificate of a Secret is, and what is wrong with its dates.
func describePair(s *corev1.Secret) (string, []string, error) {
	chain, err := ReadPair(s.Data)
	if err != nil {
		return "", nil, err
	}
	text := chain[0].Subject.String()
	if names := certificate.Names(chain[0]); len(names) > 0 {
		text += " for " + strings.Join(names, ", ")
	}
	return text + ", valid until " + certificate.Stamp(chain[0].NotAfter), certificate.Dates(chain[0], time.Now()), nil
}
