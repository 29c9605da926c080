package enrollment

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// pendingKey is the key of the Secret with the private key of an enrollment that is under way.
const pendingKey = "enrollment.key"

// read returns the Secret of the certificate, an empty one if there is none.
func (e *Enroller) read(ctx context.Context) (*corev1.Secret, error) {
	found, err := e.options.Secrets.Get(ctx, e.options.SecretName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return &corev1.Secret{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read Secret %s: %w", e.options.SecretName, err)
	}
	return found, nil
}

// begin keeps the private key of an enrollment in the Secret that was found, unless another agent has changed it meanwhile.
func (e *Enroller) begin(ctx context.Context, found *corev1.Secret, key []byte) error {
	if found.Name == "" {
		// A Secret of that type has these two, if empty ones.
		return e.create(ctx, map[string][]byte{corev1.TLSCertKey: {}, corev1.TLSPrivateKeyKey: {}, pendingKey: key})
	}
	return e.patch(ctx, e.options.SecretName, map[string]any{
		"metadata": map[string]any{"resourceVersion": found.ResourceVersion}, "data": map[string][]byte{pendingKey: key},
	})
}

// write puts keys into the Secret in one request, so that nobody reads a certificate with another's key. Those whose value is nil go. All
// else that it has stays.
func (e *Enroller) write(ctx context.Context, data map[string][]byte) error {
	err := e.patch(ctx, e.options.SecretName, map[string]any{"data": data})
	if !apierrors.IsNotFound(err) {
		return err
	}
	maps.DeleteFunc(data, func(_ string, value []byte) bool { return value == nil })
	return e.create(ctx, data)
}

func (e *Enroller) patch(ctx context.Context, name string, change map[string]any) error {
	text, err := json.Marshal(change)
	if err != nil {
		return err
	}
	_, err = e.options.Secrets.Patch(ctx, name, types.MergePatchType, text, metav1.PatchOptions{})
	return err
}

func (e *Enroller) create(ctx context.Context, data map[string][]byte) error {
	_, err := e.options.Secrets.Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: e.options.SecretName}, Type: corev1.SecretTypeTLS, Data: data,
	}, metav1.CreateOptions{})
	return err
}
