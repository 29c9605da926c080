package enrollment

import (
	"context"
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// write puts keys into the Secret in one request, so that nobody reads a certificate with another's key. All else that it has stays.
func (e *Enroller) write(ctx context.Context, data map[string][]byte) error {
	patch, err := json.Marshal(map[string]any{"data": data})
	if err != nil {
		return err
	}
	_, err = e.options.Secrets.Patch(ctx, e.options.SecretName, types.MergePatchType, patch, metav1.PatchOptions{})
	if !apierrors.IsNotFound(err) {
		return err
	}
	_, err = e.options.Secrets.Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: e.options.SecretName}, Type: corev1.SecretTypeTLS, Data: data,
	}, metav1.CreateOptions{})
	return err
}
