package floor

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
)

// Batch is objects of one kind that Once copies.
type Batch struct {
	Resource  schema.GroupVersionResource
	Namespace string // of the hub
	Selector  string // by labels; empty for all
}

// Once reads what is on the hub and creates it on the spoke, with several writes under way at a time. It ends when all of it
// is there: a loop's beginning, without the loop.
func Once(ctx context.Context, options Options, batches []Batch) error {
	hub, err := dynamic.NewForConfig(options.Hub.Config)
	if err != nil {
		return fmt.Errorf("client of the hub: %w", err)
	}
	spoke, err := dynamic.NewForConfig(options.Spoke.Config)
	if err != nil {
		return fmt.Errorf("client of the spoke: %w", err)
	}
	work, ctx := errgroup.WithContext(ctx)
	work.SetLimit(options.Workers)
	for _, b := range batches {
		list, err := hub.Resource(b.Resource).Namespace(b.Namespace).List(ctx, metav1.ListOptions{LabelSelector: b.Selector})
		if err != nil {
			return errors.Join(fmt.Errorf("list %s: %w", b.Resource.Resource, err), work.Wait())
		}
		to := spoke.Resource(b.Resource).Namespace(options.Spoke.Namespace)
		for i := range list.Items {
			work.Go(func() error {
				_, err := to.Create(ctx, copyOf(&list.Items[i], options.Spoke.Namespace), metav1.CreateOptions{})
				if apierrors.IsAlreadyExists(err) {
					return nil // the default project is everywhere
				}
				return err
			})
		}
	}
	return work.Wait()
}
