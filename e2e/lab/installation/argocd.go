package installation

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/cluster"
)

// argocdManifest writes one of Argo CD's own manifests, a file of the toolset, as this lab can have it, and returns its path. What is different from
// what people have: images are not pulled, and single sign-on and notifications are left away.
func (l *Lab) argocdManifest(file string) (string, error) {
	text, err := os.ReadFile(l.Tools.File(file))
	if err != nil {
		return "", err
	}
	objects, err := cluster.Parse(text)
	if err != nil {
		return "", err
	}
	list := &unstructured.UnstructuredList{Object: map[string]any{"apiVersion": "v1", "kind": "List"}}
	for _, object := range objects {
		if object.GetName() == "argocd-dex-server" || object.GetName() == "argocd-notifications-controller" {
			continue
		}
		doNotPull(object)
		list.Items = append(list.Items, *object)
	}
	adapted, err := list.MarshalJSON()
	if err != nil {
		return "", err
	}
	return l.Host.Write(filepath.Join("argocd", file), adapted)
}

// doNotPull has a Pod's containers use images that the node has.
func doNotPull(object *unstructured.Unstructured) {
	for _, kind := range []string{"containers", "initContainers"} {
		path := []string{"spec", "template", "spec", kind}
		containers, found, _ := unstructured.NestedSlice(object.Object, path...)
		for _, container := range containers {
			if fields, ok := container.(map[string]any); ok {
				fields["imagePullPolicy"] = "Never"
			}
		}
		if found {
			_ = unstructured.SetNestedSlice(object.Object, containers, path...) // it was a slice
		}
	}
}

// Settled returns when all Deployments and StatefulSets of a namespace have all the Pods that they are to have, ready.
func (s *Site) Settled(ctx context.Context, namespace string) error {
	for _, resource := range []string{"deployments", "statefulsets"} {
		_, err := s.WaitAll(ctx, cluster.Selection{
			Resource: schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: resource}, Namespace: namespace,
		}, func(objects cluster.Objects) bool {
			for _, object := range objects {
				if !settled(object) {
					return false
				}
			}
			return true
		})
		if err != nil {
			return fmt.Errorf("%w\n%s", err, s.Explain(context.WithoutCancel(ctx)))
		}
	}
	return nil
}

func settled(object *unstructured.Unstructured) bool {
	number := func(path ...string) int64 {
		n, _, _ := unstructured.NestedInt64(object.Object, path...)
		return n
	}
	want := number("spec", "replicas")
	return number("status", "observedGeneration") >= object.GetGeneration() && number("status", "readyReplicas") == want &&
		number("status", "updatedReplicas") == want && number("status", "replicas") == want
}
