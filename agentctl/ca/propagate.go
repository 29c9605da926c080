package ca

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/certificate"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/cluster"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/certs/secret"
)

// Propagate has a spoke trust the CAs: their certificates, never a key.
func Propagate(ctx context.Context, t Trusted, spoke *cluster.Client, replace bool) (cluster.Result, error) {
	return spoke.Put(ctx, cluster.Change{
		Name: SecretName, Type: corev1.SecretTypeOpaque, Replace: replace, Flag: "--upsert",
		Differs: func(existing *corev1.Secret) []string {
			found, err := parseTrusted(existing.Data)
			if err != nil {
				return []string{err.Error()}
			}
			return t.Differs(found)
		},
		Refuse: func(existing *corev1.Secret) error {
			if len(existing.Data[secret.PrivateKeyKey]) == 0 {
				return nil
			}
			return errors.New("it has a private key, as a CA's own Secret does, which would be lost: " +
				"is this the spoke? Choose it by --agent-context and --agent-namespace")
		},
		Write: func(s *corev1.Secret) error {
			if s.Type == corev1.SecretTypeTLS {
				return fmt.Errorf("it is of type %s, which needs a private key: delete it first: %s", s.Type,
					spoke.Command("delete secret %s -n %s", SecretName, spoke.Namespace))
			}
			s.Data = map[string][]byte{secret.CAKey: t.PEM}
			return nil
		},
		Describe: func(*corev1.Secret) (string, []string, error) {
			var notes []string
			for _, one := range t.Certificates {
				notes = append(notes, certificate.Dates(one, time.Now())...)
			}
			return subjects(t.Certificates), notes, nil
		},
	})
}

// Differs says that other CAs are not these.
func (t Trusted) Differs(there Trusted) []string {
	ours, theirs := raw(t.Certificates), raw(there.Certificates)
	if len(without(ours, theirs))+len(without(theirs, ours)) == 0 {
		return nil
	}
	return []string{"it has " + subjects(there.Certificates) + ", and the hub has " + subjects(t.Certificates)}
}

func raw(certificates []*x509.Certificate) []string {
	var texts []string
	for _, one := range certificates {
		texts = append(texts, string(one.Raw))
	}
	return texts
}

// subjects says in a few words which CAs these are. Two may have one name: they differ by their fingerprints.
func subjects(certificates []*x509.Certificate) string {
	var texts []string
	for _, one := range certificates {
		about := certificate.Describe(one)
		texts = append(texts, fmt.Sprintf("%s (SHA-256 %s…), valid until %s", about.Subject, about.SHA256[:16], certificate.Stamp(one.NotAfter)))
	}
	slices.Sort(texts)
	return strings.Join(texts, " and ")
}
