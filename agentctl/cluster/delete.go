package cluster

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Delete deletes a Secret that was read before, unless it is another one by then. about says what was in it.
func (c *Client) Delete(ctx context.Context, secret *corev1.Secret, about string) (Result, error) {
	result := Result{Where: c.Secret(secret.Name), Outcome: Deleted, About: about}
	err := c.core.Secrets(c.Namespace).Delete(ctx, secret.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &secret.UID},
	})
	if err != nil {
		return Result{}, fmt.Errorf("%s: delete: %w", result.Where, c.explain(err))
	}
	return result, nil
}
