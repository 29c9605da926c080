// Package argocd runs Argo CD against one cluster of the lab: its real programs, with the definitions and settings of
// its own namespace installation. It knows nothing of principals and agents.
package argocd

import (
	"context"
	"fmt"
	"os"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/cluster"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/host"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/process"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/toolset"
)

// Namespace is where Argo CD lives on every cluster of the lab.
const Namespace = "argocd"

// RedisPassword is what every Redis of the lab wants.
const RedisPassword = "not-a-secret-in-a-lab"

// Options say which of Argo CD's programs run. Cluster, Host and Tools are required.
type Options struct {
	Cluster    *cluster.Cluster
	Host       *host.Host
	Tools      *toolset.Set
	Controller bool // the application controller, which makes Applications true
}

// Installation is Argo CD on one cluster. Its processes belong to the host.
type Installation struct {
	Redis      *process.Process
	RepoServer *process.Process
	Server     *process.Process // nil before StartServer
	Controller *process.Process // nil when not asked for

	RedisAddress string // host:port; it wants RedisPassword
	URL          string // of argocd-server's API, which asks nobody who they are. Empty before StartServer

	options    Options
	kubeconfig string
	repoServer string // host:port
	wrappers   string // folder of scripts that the repo server expects on its PATH
}

// Define installs Argo CD's definitions of Application, AppProject and ApplicationSet, its namespace, and the AppProject
// "default", which here lets everything through. It runs no program.
func Define(ctx context.Context, c *cluster.Cluster, tools *toolset.Set) error {
	if err := c.Define(ctx, tools.File(toolset.ApplicationCRD), tools.File(toolset.AppProjectCRD), tools.File(toolset.AppSetCRD)); err != nil {
		return err
	}
	return c.Apply(ctx, namespace(Namespace), defaultProject())
}

// Install applies the settings of Argo CD's own namespace installation and starts its programs.
func Install(ctx context.Context, options Options) (*Installation, error) {
	i := &Installation{options: options, kubeconfig: options.Cluster.Kubeconfig}
	if err := i.configure(ctx); err != nil {
		return nil, fmt.Errorf("argocd on %s: %w", options.Cluster.Name, err)
	}
	if err := i.run(ctx); err != nil {
		return nil, fmt.Errorf("argocd on %s: %w", options.Cluster.Name, err)
	}
	return i, nil
}

func (i *Installation) configure(ctx context.Context) error {
	text, err := os.ReadFile(i.options.Tools.File(toolset.ArgoCDManifests))
	if err != nil {
		return err
	}
	objects, err := cluster.Parse(text)
	if err != nil {
		return err
	}
	// The rest of the installation are programs, which run outside of the cluster here, and networking for them.
	kinds := []string{"ConfigMap", "Secret", "Role", "RoleBinding", "ServiceAccount"}
	for _, object := range objects {
		if !slices.Contains(kinds, object.GetKind()) {
			continue
		}
		object.SetNamespace(Namespace)
		adapt(object)
		if err := i.options.Cluster.Apply(ctx, object); err != nil {
			return err
		}
	}
	i.wrappers, err = wrappers(i.options.Host)
	return err
}

// adapt sets what the installation leaves to be set by its people.
func adapt(object *unstructured.Unstructured) {
	switch object.GetName() {
	case "argocd-cmd-params-cm":
		object.Object["data"] = map[string]any{"application.namespaces": "*"}
	case "argocd-cm":
		object.Object["data"] = map[string]any{"exec.enabled": "true"}
	case "argocd-secret":
		object.Object["stringData"] = map[string]any{"server.secretkey": "not a secret in a lab"}
	}
}
