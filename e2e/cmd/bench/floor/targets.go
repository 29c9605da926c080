package floor

import (
	"context"
	"encoding/json"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
)

// copies are the spoke's Applications, made from the hub's.
type copies struct {
	client    dynamic.ResourceInterface
	namespace string

	mu    sync.Mutex // guards there
	there map[string]bool
}

func (c *copies) learn(ctx context.Context) ([]string, error) {
	list, err := c.client.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	names := make([]string, len(list.Items))
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range list.Items {
		names[i] = list.Items[i].GetName()
		c.there[names[i]] = true
	}
	return names, nil
}

func (c *copies) write(ctx context.Context, name string, object *unstructured.Unstructured) error {
	c.mu.Lock()
	there := c.there[name]
	c.mu.Unlock()
	switch {
	case object == nil && there:
		if err := c.client.Delete(ctx, name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	case object != nil && !there:
		if _, err := c.client.Create(ctx, copyOf(object, c.namespace), metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
	default:
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if object == nil {
		delete(c.there, name)
	} else {
		c.there[name] = true
	}
	return nil
}

// copyOf returns the content of an object for a namespace of the spoke.
func copyOf(object *unstructured.Unstructured, namespace string) *unstructured.Unstructured {
	out := object.DeepCopy()
	delete(out.Object, "metadata")
	delete(out.Object, "status")
	if object.GetKind() == "Application" {
		_ = unstructured.SetNestedField(out.Object, "in-cluster", "spec", "destination", "name") // the API server has seen that it is an object
	}
	out.SetName(object.GetName())
	out.SetNamespace(namespace)
	out.SetLabels(object.GetLabels())
	out.SetAnnotations(object.GetAnnotations())
	return out
}

// statuses are the statuses of the hub's Applications.
type statuses struct {
	client dynamic.ResourceInterface
}

// learn reads nothing: the benchmark never restarts this direction of the floor with anything in place.
func (s *statuses) learn(context.Context) ([]string, error) { return nil, nil }

func (s *statuses) write(ctx context.Context, name string, object *unstructured.Unstructured) error {
	if object == nil {
		return nil
	}
	status, found, err := unstructured.NestedFieldNoCopy(object.Object, "status")
	if err != nil || !found {
		return err
	}
	patch, err := json.Marshal(map[string]any{"status": status})
	if err != nil {
		return err
	}
	_, err = s.client.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
	if apierrors.IsNotFound(err) {
		return nil // deleted on the hub meanwhile
	}
	return err
}
