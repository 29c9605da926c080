package argocd

import (
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// Instance returns what Argo CD calls an application in Redis: NAMESPACE_NAME, or NAME in its own namespace.
func Instance(id types.NamespacedName, own string) string {
	if id.Namespace == own {
		return id.Name
	}
	return id.Namespace + "_" + id.Name
}

// ParseInstance returns the application that Instance wrote.
func ParseInstance(instance, own string) types.NamespacedName {
	if namespace, name, ok := strings.Cut(instance, "_"); ok { // which is in no name
		return types.NamespacedName{Namespace: namespace, Name: name}
	}
	return types.NamespacedName{Namespace: own, Name: instance}
}
