package argocd

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/cluster"
)

// Application describes an Application for New.
type Application struct {
	Namespace   string // where the Application lives
	Name        string
	RepoURL     string
	Path        string
	Destination string // name of the destination cluster; empty for the one that Argo CD runs in
	Into        string // namespace that its resources go to; it is created if need be
	Manual      bool   // whether it waits to be told to sync
}

// New makes the object of an Application.
func New(a Application) *unstructured.Unstructured {
	policy := map[string]any{"syncOptions": []any{"CreateNamespace=true"}}
	if !a.Manual {
		policy["automated"] = map[string]any{"prune": true, "selfHeal": true}
	}
	if a.Destination == "" {
		a.Destination = "in-cluster"
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "argoproj.io/v1alpha1", "kind": "Application",
		"metadata": map[string]any{"name": a.Name, "namespace": a.Namespace},
		"spec": map[string]any{
			"project":     "default",
			"source":      map[string]any{"repoURL": a.RepoURL, "path": a.Path, "targetRevision": "main"},
			"destination": map[string]any{"name": a.Destination, "namespace": a.Into},
			"syncPolicy":  policy,
		},
	}}
}

// Named selects an Application.
func Named(namespace, name string) cluster.Selection {
	return cluster.Selection{
		Resource:  schema.GroupVersionResource{Group: "argoproj.io", Version: "v1alpha1", Resource: "applications"},
		Namespace: namespace, Name: name,
	}
}

// All selects the Applications of a namespace, or of all with an empty one.
func All(namespace string) cluster.Selection { return Named(namespace, "") }

// Sync is the sync status of an Application: Synced, OutOfSync, Unknown, or empty when it has none yet.
func Sync(application *unstructured.Unstructured) string {
	return text(application, "status", "sync", "status")
}

// Health is the health of an Application: Healthy, Progressing, Degraded, Missing, or empty when it has none yet.
func Health(application *unstructured.Unstructured) string {
	return text(application, "status", "health", "status")
}

// SyncedAndHealthy reports whether an Application exists and is Synced and Healthy.
func SyncedAndHealthy(application *unstructured.Unstructured) bool {
	return application != nil && Sync(application) == "Synced" && Health(application) == "Healthy"
}

// text reads a string from an object, empty when there is none or no object.
func text(object *unstructured.Unstructured, path ...string) string {
	if object == nil {
		return ""
	}
	value, _, _ := unstructured.NestedString(object.Object, path...)
	return value
}

func namespace(name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name},
	}}
}

func defaultProject() *unstructured.Unstructured {
	all := []any{map[string]any{"group": "*", "kind": "*"}}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "argoproj.io/v1alpha1", "kind": "AppProject",
		"metadata": map[string]any{"name": "default", "namespace": Namespace},
		"spec": map[string]any{
			"sourceRepos":              []any{"*"},
			"sourceNamespaces":         []any{"*"},
			"destinations":             []any{map[string]any{"name": "*", "namespace": "*", "server": "*"}},
			"clusterResourceWhitelist": all,
		},
	}}
}
