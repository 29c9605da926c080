// Package signingkey keeps the key that signs agents' bearer tokens in a Secret on the hub.
package signingkey

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

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

// Info describes the keys. It holds none.
type Info struct {
	Secret    string    `json:"secret"`
	KeyType   string    `json:"keyType"`
	KeyLength int       `json:"keyLength"`
	Created   time.Time `json:"created"`
	// SHA256 is that of the public key in its PKIX form, in hexadecimal digits.
	SHA256 string `json:"sha256"`
	// Verify are the thumbprints of all keys that verify, as the header kid of tokens has them. The first one signs.
	Verify []string `json:"verify"`
}

// Key says in words of which kind the signing key is.
func (i Info) Key() string { return fmt.Sprintf("%s %d", i.KeyType, i.KeyLength) }

// Find returns the Secret of the keys, which must be there.
func Find(ctx context.Context, hub *cluster.Client) (*corev1.Secret, error) {
	found, err := hub.Get(ctx, SecretName)
	if err == nil && found == nil {
		err = fmt.Errorf("%s: not found: create it with: argocd-agentctl jwt create-key", hub.Secret(SecretName))
	}
	return found, err
}

// Issue returns a bearer token for an agent, which is good from now on for so long.
func Issue(ctx context.Context, hub *cluster.Client, agent string, lifetime time.Duration) (string, error) {
	found, err := Find(ctx, hub)
	if err != nil {
		return "", err
	}
	keys, err := Read(found.Data)
	if err != nil {
		return "", fmt.Errorf("%s: %w", hub.Secret(SecretName), err)
	}
	return keys.Issue(agent, lifetime)
}

// Inspect describes the keys on a hub.
func Inspect(ctx context.Context, hub *cluster.Client) (Info, error) {
	found, err := Find(ctx, hub)
	if err != nil {
		return Info{}, err
	}
	keys, err := Read(found.Data)
	if err == nil && !keys.CanSign() {
		err = errors.New("its key " + dataKey + " holds no private key: replace it with: argocd-agentctl jwt create-key --upsert")
	}
	if err != nil {
		return Info{}, fmt.Errorf("%s: %w", hub.Secret(SecretName), err)
	}
	public := keys.Public()
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		return Info{}, fmt.Errorf("%s: %w", hub.Secret(SecretName), err)
	}
	sum := sha256.Sum256(der)
	about := Info{
		Secret: found.Namespace + "/" + found.Name, Created: found.CreationTimestamp.UTC(), SHA256: hex.EncodeToString(sum[:]), Verify: keys.Thumbprints(),
	}
	switch key := public.(type) {
	case *rsa.PublicKey:
		about.KeyType, about.KeyLength = "RSA", key.N.BitLen()
	case *ecdsa.PublicKey:
		about.KeyType, about.KeyLength = "ECDSA", key.Curve.Params().BitSize
	case ed25519.PublicKey:
		about.KeyType, about.KeyLength = "Ed25519", 8*len(key)
	}
	return about, nil
}
