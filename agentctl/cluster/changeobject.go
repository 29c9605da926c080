package cluster

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
)

// objects are the Secrets or the ConfigMaps of a namespace.
type objects[O any] interface {
	Get(ctx context.Context, name string, options metav1.GetOptions) (*O, error)
	Create(ctx context.Context, object *O, options metav1.CreateOptions) (*O, error)
	Update(ctx context.Context, object *O, options metav1.UpdateOptions) (*O, error)
}

// changeObject has a function change an object, unless it returns false or an error. One that is not there is made of empty. The function is
// called again if somebody else writes at the same time: what several people write is all kept.
func changeObject[O any](ctx context.Context, all objects[O], name string, empty func() *O, change func(*O) (bool, error)) error {
	again := func(err error) bool { return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) }
	return retry.OnError(retry.DefaultBackoff, again, func() error {
		found, err := all.Get(ctx, name, metav1.GetOptions{})
		missing := apierrors.IsNotFound(err)
		if missing {
			found, err = empty(), nil
		}
		if err != nil {
			return err
		}
		if changed, err := change(found); err != nil || !changed {
			return err
		}
		if missing {
			_, err = all.Create(ctx, found, metav1.CreateOptions{})
		} else {
			_, err = all.Update(ctx, found, metav1.UpdateOptions{})
		}
		return err
	})
}
