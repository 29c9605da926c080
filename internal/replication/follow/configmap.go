package follow

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/tools/cache"
)

// ConfigMap returns options to follow the one ConfigMap of that name, which need leave to list and watch that one only.
// What is kept of it, and who learns of changes, is for the caller to add.
func ConfigMap[T comparable](client cache.Getter, namespace, name string) Options[*corev1.ConfigMap, T] {
	only := fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
	maps := cache.NewFilteredListWatchFromClient(client, "configmaps", namespace, func(o *metav1.ListOptions) { o.FieldSelector = only })
	return Options[*corev1.ConfigMap, T]{Kind: &corev1.ConfigMap{}, List: maps.ListWithContextFunc, Watch: maps.WatchFuncWithContext}
}

// Secret is ConfigMap for the one Secret of that name.
func Secret[T comparable](client cache.Getter, namespace, name string) Options[*corev1.Secret, T] {
	only := fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
	secrets := cache.NewFilteredListWatchFromClient(client, "secrets", namespace, func(o *metav1.ListOptions) { o.FieldSelector = only })
	return Options[*corev1.Secret, T]{Kind: &corev1.Secret{}, List: secrets.ListWithContextFunc, Watch: secrets.WatchFuncWithContext}
}
