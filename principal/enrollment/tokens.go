package enrollment

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typed "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/util/retry"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/enrolltoken"
)

// Tokens are the enrollment tokens that the hub remembers, in one Secret.
type Tokens struct {
	Client    typed.SecretsGetter
	Namespace string
}

// Redeem uses a token for a public key, unless permit, which is asked once the token holds, says why not. The Secret is written before anything
// is signed, on the version that was read: of those who use a token at the same time, at any replica, one succeeds. What is the
// caller's fault is a refusal.
func (t Tokens) Redeem(ctx context.Context, token enrolltoken.Token, publicKey []byte, permit func() error) error {
	secrets := t.Client.Secrets(t.Namespace)
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		found, err := secrets.Get(ctx, enrolltoken.SecretName, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			found = &corev1.Secret{}
		case err != nil:
			return fmt.Errorf("read Secret %s: %w", enrolltoken.SecretName, err)
		}
		entry, changed, err := enrolltoken.Redeem(found.Data[string(token.Agent)], token, publicKey, time.Now())
		if err != nil {
			return refuse(codes.Unauthenticated, "%v", err)
		}
		if err := permit(); err != nil || !changed {
			return err
		}
		if found.Data[string(token.Agent)], err = entry.Encode(); err != nil {
			return err
		}
		if _, err = secrets.Update(ctx, found, metav1.UpdateOptions{}); err != nil {
			return fmt.Errorf("write Secret %s: %w", enrolltoken.SecretName, err)
		}
		return nil
	})
}
