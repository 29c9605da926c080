package lab

import (
	"context"
	"embed"
	"io/fs"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/cluster"
)

// Names of the Secrets that programs look for.
const (
	caSecret            = "argocd-agent-ca"
	principalSecret     = "argocd-agent-principal-tls"
	agentSecret         = "argocd-agent-client-tls"
	resourceProxySecret = "argocd-agent-resource-proxy-tls"
	xdsSecret           = "argocd-agent-xds-tls"
)

//go:embed manifests
var manifests embed.FS

func namespaceObject(name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name},
	}}
}

func applyManifest(ctx context.Context, c *Cluster, name string) error {
	objects, err := parseManifest(name)
	if err != nil {
		return err
	}
	return c.Apply(ctx, objects...)
}

func parseManifest(name string) ([]*unstructured.Unstructured, error) {
	text, err := manifests.ReadFile(name)
	if err != nil {
		return nil, err
	}
	return cluster.Parse(text)
}

// repositoryFiles are the first contents of the Git repository.
func repositoryFiles() (map[string]string, error) {
	files := make(map[string]string)
	for _, dir := range []string{GuestbookPath, ConfigPath} {
		name := dir + "/" + dir + ".yaml"
		text, err := fs.ReadFile(manifests, "manifests/"+name)
		if err != nil {
			return nil, err
		}
		files[name] = string(text)
	}
	return files, nil
}
