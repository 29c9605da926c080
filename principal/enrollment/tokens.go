package enrollment

import (
	"context"
	"fmt"
	"time"

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

// Redeem uses a token for a public key. The Secret is written before anything is signed, on the version that was read: of those who use a
// token at the same time, at any replica, one succeeds. Errors that are not the caller's fault are a hubError.
func (t Tokens) Redeem(ctx context.Context, token enrolltoken.Token, publicKey []byte) error {
	secrets := t.Client.Secrets(t.Namespace)
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		found, err := secrets.Get(ctx, enrolltoken.SecretName, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return enrolltoken.ErrUnknown
		}
		if err != nil {
			return hubError{err}
		}
		entry, changed, err := enrolltoken.Redeem(found.Data[string(token.Agent)], token, publicKey, time.Now())
		if err != nil || !changed {
			return err
		}
		if found.Data[string(token.Agent)], err = entry.Encode(); err != nil {
			return err
		}
		_, err = secrets.Update(ctx, found, metav1.UpdateOptions{})
		if err != nil && !apierrors.IsConflict(err) {
			return hubError{err}
		}
		return err
	})
	if apierrors.IsConflict(err) {
		return hubError{err}
	}
	return err
}

// hubError is one that the caller can do nothing about, nor should read.
type hubError struct{ error }

func (e hubError) Error() string {
	return fmt.Sprintf("Secret %s: %v", enrolltoken.SecretName, e.error)
}
func (e hubError) Unwrap() error { return e.error }
