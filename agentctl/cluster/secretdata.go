package cluster

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ChangeSecret has a function change the data of a Secret, which is made if it is not there. The function is called again if somebody else
// writes at the same time: entries of several people are all kept.
func (c *Client) ChangeSecret(ctx context.Context, name string, change func(data map[string][]byte) error) error {
	empty := func() *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: name}}
	}
	err := changeObject(ctx, c.core.Secrets(c.Namespace), name, empty, func(s *corev1.Secret) (bool, error) {
		if s.Data == nil {
			s.Data = make(map[string][]byte)
		}
		return true, change(s.Data)
	})
	if err != nil {
		return fmt.Errorf("%s: %w", c.Secret(name), c.explain(err))
	}
	return nil
}
