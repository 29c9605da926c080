// Command manifests renders the charts as folders for `kubectl apply -k`, for those who do not use Helm. Certificates are not in them:
// argocd-agentctl makes those. The folders istio/hub and istio/spoke are what somebody applies who runs an Istio mesh, where the charts have
// istio.objects=false; they are kept in this repository too.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/cluster"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/toolset"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// folder is one that is made of a chart, by some arguments of helm template.
type folder struct {
	name, chart string
	args        []string
}

func folders(charts string) []folder {
	const hub, spoke = "argocd-agent-hub", "argocd-agent-spoke"
	own := []string{"--set=server.address=hub.example.com,certificates.mode=secrets"}
	istio := func(chart string) []string {
		return []string{"--values=" + filepath.Join(charts, chart, "ci", "istio-sidecar-values.yaml"), "--show-only=templates/istio/*.yaml"}
	}
	return []folder{
		{"hub", hub, own}, {"spoke", spoke, own}, {filepath.Join("istio", "hub"), hub, istio(hub)}, {filepath.Join("istio", "spoke"), spoke, istio(spoke)},
	}
}

// run writes to the folder that is its one argument, in place of what is there.
func run(ctx context.Context, args []string) error {
	if len(args) != 1 {
		return errors.New("want one argument: the folder to write to")
	}
	out := args[0]
	repository, err := toolset.Repository()
	if err != nil {
		return err
	}
	tools, err := toolset.Locate(repository)
	if err != nil {
		return err
	}
	charts := filepath.Join(repository, "charts")
	for _, f := range folders(charts) {
		objects, err := render(ctx, tools.Program(toolset.Helm), filepath.Join(charts, f.chart), f.args)
		if err != nil {
			return fmt.Errorf("%s: %w", f.chart, err)
		}
		if err := write(filepath.Join(out, f.name), objects); err != nil {
			return err
		}
		fmt.Println(filepath.Join(out, f.name))
	}
	return nil
}

// render returns what the chart makes, without what only Helm runs, and without what says that Helm has it.
func render(ctx context.Context, helm, chart string, args []string) ([]*unstructured.Unstructured, error) {
	cmd := exec.CommandContext(ctx, helm,
		append([]string{"template", "argocd-agent", chart, "--namespace=argocd", "--no-hooks", "--kube-version=1.36.1"}, args...)...)
	cmd.Env = append(os.Environ(), "KUBECONFIG=")
	var problem strings.Builder
	cmd.Stderr = &problem
	text, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("helm template: %w\n%s", err, problem.String())
	}
	objects, err := cluster.Parse(text)
	if err != nil {
		return nil, err
	}
	for _, object := range objects {
		for _, at := range [][]string{{"metadata", "labels"}, {"spec", "template", "metadata", "labels"}} {
			for _, label := range []string{"app.kubernetes.io/managed-by", "helm.sh/chart"} {
				unstructured.RemoveNestedField(object.Object, append(at, label)...)
			}
		}
	}
	return objects, nil
}

// write writes each object to a file of its own, and the list of them.
func write(dir string, objects []*unstructured.Unstructured) error {
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	list := map[string]any{"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization"}
	var names []string
	for _, object := range objects {
		text, err := yaml.Marshal(object.Object)
		if err != nil {
			return err
		}
		name := strings.ToLower(object.GetKind()) + "-" + object.GetName() + ".yaml"
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
			return err
		}
		names = append(names, name)
	}
	list["resources"] = names
	text, err := yaml.Marshal(list)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "kustomization.yaml"), text, 0o644)
}
