package cluster

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"
)

// ChangePods has a function change the Pods of a workload, unless it returns false, and reports what became of it. The workload's controller
// replaces its Pods then. The function is called again if somebody else writes at the same time.
func (c *Client) ChangePods(ctx context.Context, w *Workload, about string, change func(*corev1.PodSpec) (bool, error)) (Result, error) {
	result := Result{Where: fmt.Sprintf("%s %s/%s on %s", w.Kind, c.Namespace, w.Name, c), Outcome: Unchanged, About: about}
	client, err := kubernetes.NewForConfig(c.config)
	if err != nil {
		return Result{}, err
	}
	var changed bool
	if apps := client.AppsV1(); w.Kind == "StatefulSet" {
		changed, err = changePods(ctx, apps.StatefulSets(c.Namespace), w.Name, func(s *appsv1.StatefulSet) *corev1.PodSpec { return &s.Spec.Template.Spec }, change)
	} else {
		changed, err = changePods(ctx, apps.Deployments(c.Namespace), w.Name, func(d *appsv1.Deployment) *corev1.PodSpec { return &d.Spec.Template.Spec }, change)
	}
	if changed {
		result.Outcome = Changed
	}
	if err != nil {
		return Result{}, fmt.Errorf("%s: %w", result.Where, c.explain(err))
	}
	return result, nil
}

// readWriter reads and writes workloads of a kind.
type readWriter[O any] interface {
	Get(ctx context.Context, name string, options metav1.GetOptions) (*O, error)
	Update(ctx context.Context, object *O, options metav1.UpdateOptions) (*O, error)
}

// changePods has a function change the Pods of a workload, and reports whether it did.
func changePods[O any](ctx context.Context, all readWriter[O], name string, pods func(*O) *corev1.PodSpec, change func(*corev1.PodSpec) (bool, error)) (changed bool, err error) {
	err = retry.OnError(retry.DefaultBackoff, apierrors.IsConflict, func() error {
		found, err := all.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if changed, err = change(pods(found)); changed && err == nil {
			_, err = all.Update(ctx, found, metav1.UpdateOptions{})
		}
		return err
	})
	return changed, err
}
