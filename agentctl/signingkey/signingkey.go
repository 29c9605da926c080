// Package signingkey keeps the key that signs agents' bearer tokens in a Secret on the hub.
package signingkey

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/cluster"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/pki"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/token"
)

const (
	// SecretName is the Secret of the key.
	SecretName = "argocd-agent-jwt"
	// dataKey is its key that holds the private key, in PKCS #8 PEM.
	dataKey = "jwt.key"
)

// Create creates a signing key, unless there is a good one. Once it is replaced, tokens of the older one are refused. Other keys
// of the Secret stay: they only verify, and somebody put them there on purpose.
func Create(ctx context.Context, hub *cluster.Client, kind pki.KeyKind, replace bool) (cluster.Result, error) {
	return hub.Put(ctx, cluster.Change{
		Name: SecretName, Type: corev1.SecretTypeOpaque, Replace: replace, Flag: "--upsert",
		Differs: func(existing *corev1.Secret) []string {
			keys, err := Read(existing.Data)
			switch {
			case err != nil:
				return []string{err.Error()}
			case !keys.CanSign():
				return []string{"its key " + dataKey + " holds no private key"}
			default:
				return nil
			}
		},
		Write: func(s *corev1.Secret) error {
			key, err := pki.NewKey(kind)
			if err != nil {
				return err
			}
			s.Data[dataKey] = key
			return nil
		},
		Describe: func(s *corev1.Secret) (string, []string, error) {
			keys, err := Read(s.Data)
			if err != nil {
				return "", nil, err
			}
			return "key " + keys.Thumbprints()[0], nil, nil
		},
	})
}

// Read reads the keys of a Secret's data as kubeproxy does where the Secret is mounted.
func Read(data map[string][]byte) (*token.Keys, error) {
	if len(data[dataKey]) == 0 {
		return nil, errors.New("its key " + dataKey + " is missing or empty")
	}
	return token.ParseFolder(data)
}
