package cluster

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
)

// ChangeSecret has a function change the data of a Secret, which is made if it is not there. The function is called again if somebody else
// writes at the same time: entries of several people are all kept.
func (c *Client) ChangeSecret(ctx context.Context, name string, change func(data map[string][]byte) error) error {
	secrets := c.core.Secrets(c.Namespace)
	again := func(err error) bool { return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) }
	err := retry.OnError(retry.DefaultBackoff, again, func() error {
		found, err := secrets.Get(ctx, name, metav1.GetOptions{})
		missing := apierrors.IsNotFound(err)
		if missing {
			found, err = &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: name}}, nil
		}
		if err != nil {
			return err
		}
		if found.Data == nil {
			found.Data = make(map[string][]byte)
		}
		if err := change(found.Data); err != nil {
			return err
		}
		if missing {
			_, err = secrets.Create(ctx, found, metav1.CreateOptions{})
		} else {
			_, err = secrets.Update(ctx, found, metav1.UpdateOptions{})
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("%s: %w", c.Secret(name), c.explain(err))
	}
	return nil
}
