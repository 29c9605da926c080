package enrollment

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typed "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/certs"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/pki"
)

// Signer issues the certificates of agents.
type Signer interface {
	// Sign returns a certificate of an agent as PEM, and after it those of intermediate CAs, if there are any. The request names the agent and
	// nothing else.
	Sign(ctx context.Context, agent identity.Agent, request pki.Request) ([]byte, error)
}

// CASecret is a Signer by the CA whose private key is in a Secret. It is read each time, so that a new CA counts at once and no
// key stays in memory.
type CASecret struct {
	Client typed.SecretsGetter
	// Namespace and Name are the Secret's.
	Namespace, Name string
	// Lifetime is how long certificates are valid, unless the CA ends before.
	Lifetime time.Duration
}

// Sign implements Signer.
func (s CASecret) Sign(ctx context.Context, agent identity.Agent, request pki.Request) ([]byte, error) {
	where := "Secret " + s.Namespace + "/" + s.Name
	found, err := s.Client.Secrets(s.Namespace).Get(ctx, s.Name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("%s: %w: create it with: argocd-agentctl pki init, and allow the principal to get it", where, err)
	}
	if len(found.Data[corev1.TLSPrivateKeyKey]) == 0 {
		return nil, fmt.Errorf("%s: it has no private key: see --signer-ca-namespace", where)
	}
	authority, err := pki.LoadCA(found.Data[corev1.TLSCertKey], found.Data[corev1.TLSPrivateKeyKey])
	if err != nil {
		return nil, fmt.Errorf("%s: %w", where, err)
	}
	return authority.SignClient(pki.ClientOptions{CommonName: string(agent), Validity: authority.Lasting(s.Lifetime)}, request.Key)
}

// leafOf returns the certificate that a signer returned.
func leafOf(text []byte) ([]*x509.Certificate, error) {
	chain, err := certs.ParseCertificates(text)
	if err == nil && chain[0].IsCA {
		err = errors.New("it is one of a CA")
	}
	return chain, err
}
