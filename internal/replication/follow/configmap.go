package follow

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	typed "k8s.io/client-go/kubernetes/typed/core/v1"
)

// ConfigMap returns options to follow the one ConfigMap of that name, which need leave to list and watch that one only.
// What is kept of it, and who learns of changes, is for the caller to add.
func ConfigMap[T comparable](client typed.ConfigMapsGetter, namespace, name string) Options[*corev1.ConfigMap, T] {
	only := fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
	maps := client.ConfigMaps(namespace)
	return Options[*corev1.ConfigMap, T]{
		Kind: &corev1.ConfigMap{},
		List: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.FieldSelector = only
			return maps.List(ctx, o)
		},
		Watch: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.FieldSelector = only
			return maps.Watch(ctx, o)
		},
	}
}
