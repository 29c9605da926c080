package cluster

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
)

// Service returns a Service, nil if there is none.
func (c *Client) Service(ctx context.Context, name string) (*corev1.Service, error) {
	found, err := c.core.Services(c.Namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("Service %s/%s on %s: %w", c.Namespace, name, c, c.explain(err))
	default:
		return found, nil
	}
}

// NetworkPolicies returns those of the client's namespace.
func (c *Client) NetworkPolicies(ctx context.Context) ([]networkingv1.NetworkPolicy, error) {
	client, err := kubernetes.NewForConfig(c.config)
	if err != nil {
		return nil, err
	}
	list, err := client.NetworkingV1().NetworkPolicies(c.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("%s: list NetworkPolicies in namespace %s: %w", c, c.Namespace, c.explain(err))
	}
	return list.Items, nil
}

// NamespaceLabels returns the labels of the client's namespace: that of its name, to who may not get it.
func (c *Client) NamespaceLabels(ctx context.Context) (map[string]string, error) {
	found, err := c.core.Namespaces().Get(ctx, c.Namespace, metav1.GetOptions{})
	switch {
	case apierrors.IsForbidden(err):
		return map[string]string{corev1.LabelMetadataName: c.Namespace}, nil
	case err != nil:
		return nil, fmt.Errorf("namespace %s on %s: %w", c.Namespace, c, c.explain(err))
	default:
		return found.Labels, nil
	}
}

// Objects returns the objects of a kind in the client's namespace, of the first of its versions that the API server serves; none if it serves
// none of them.
func (c *Client) Objects(ctx context.Context, group, resource string, versions ...string) ([]unstructured.Unstructured, error) {
	client, err := dynamic.NewForConfig(c.config)
	if err != nil {
		return nil, err
	}
	for _, version := range versions {
		kind := schema.GroupVersionResource{Group: group, Version: version, Resource: resource}
		list, err := client.Resource(kind).Namespace(c.Namespace).List(ctx, metav1.ListOptions{})
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("%s: list %s.%s in namespace %s: %w", c, resource, group, c.Namespace, c.explain(err))
		}
		return list.Items, nil
	}
	return nil, nil
}
