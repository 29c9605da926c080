// Package installation has the product as its users have it: Argo CD from its own manifests, and ours from the charts, in Pods of real nodes.
// The lab of package lab runs the same programs as processes of this machine, which is faster, and says nothing of how they are installed.
package installation

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sync/errgroup"
	"sigs.k8s.io/yaml"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/cluster"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/host"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/node"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/toolset"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/pki"
)

// Namespace is where Argo CD and the product are on every cluster.
const Namespace = "argocd"

// Lab is some clusters with a node each.
type Lab struct {
	Host       *host.Host
	Machine    *node.Machine
	Tools      *toolset.Set
	Repository string // this project's folder
	Sites      []*Site

	version string // of our images, as the charts name it
}

// Site is a cluster with its node.
type Site struct {
	*cluster.Cluster

	Node *node.Node

	lab *Lab
}

// Start starts a cluster with a node for each name, with nothing in it. When it fails, it leaves nothing.
func Start(ctx context.Context, names ...string) (*Lab, error) {
	return StartWith(ctx, nil, names...)
}

// StartWith does as Start, with modules of toolset.Slow besides.
func StartWith(ctx context.Context, tools []string, names ...string) (*Lab, error) {
	l := &Lab{}
	if err := l.start(ctx, tools, names); err != nil {
		return nil, errors.Join(err, l.Close(context.WithoutCancel(ctx)))
	}
	return l, nil
}

func (l *Lab) start(ctx context.Context, tools, names []string) (err error) {
	if l.Repository, err = toolset.Repository(); err != nil {
		return err
	}
	if l.version, err = l.released(); err != nil {
		return err
	}
	if l.Tools, err = toolset.Locate(l.Repository, tools...); err != nil {
		return err
	}
	if missing := l.Tools.Missing(); len(missing) > 0 {
		return fmt.Errorf("programs of the lab are not built: %v: run `make %s`", missing, l.Tools.Target())
	}
	if l.Host, err = host.New(host.Options{}); err != nil {
		return err
	}
	if l.Machine, err = node.NewMachine(ctx, l.Host, l.Tools); err != nil {
		return err
	}
	ca, err := pki.NewCA(pki.CAOptions{CommonName: "clusters of the lab"})
	if err != nil {
		return err
	}
	l.Sites = make([]*Site, len(names))
	var clusters errgroup.Group
	for i, name := range names {
		clusters.Go(func() error {
			c, err := cluster.Start(ctx, cluster.Options{Name: name, Host: l.Host, Tools: l.Tools, CA: ca, Nodes: l.Machine.Nodes(name)})
			l.Sites[i] = &Site{Cluster: c, lab: l}
			return err
		})
	}
	if err := clusters.Wait(); err != nil {
		return err
	}
	for _, s := range l.Sites {
		if s.Node, err = l.Machine.Join(ctx, s.Cluster); err != nil {
			return err
		}
	}
	return nil
}

// Close ends all and removes it. The context bounds how long it may take.
func (l *Lab) Close(ctx context.Context) error {
	var failures []error
	if l.Machine != nil {
		failures = append(failures, l.Machine.Close(ctx))
	}
	if l.Host != nil {
		failures = append(failures, l.Host.Close())
	}
	return errors.Join(failures...)
}

// Chart is the folder of one of the product's charts, by its name without "argocd-agent-".
func (l *Lab) Chart(name string) string {
	return filepath.Join(l.Repository, "charts", "argocd-agent-"+name)
}

// released is the version of the images that the charts install, which pages name as that of the charts, without the v.
func (l *Lab) released() (string, error) {
	text, err := os.ReadFile(filepath.Join(l.Chart("hub"), "Chart.yaml"))
	if err != nil {
		return "", err
	}
	var chart struct {
		AppVersion string `json:"appVersion"`
	}
	if err := yaml.Unmarshal(text, &chart); err != nil {
		return "", fmt.Errorf("the hub's chart: %w", err)
	}
	return chart.AppVersion, nil
}

// settings are variables of commands that a person runs, who has a context for each of some clusters, called by its name.
func (l *Lab) settings(sites []*Site) []string {
	var files []string
	for _, s := range sites {
		files = append(files, s.Kubeconfig)
	}
	home := filepath.Join(l.Host.Dir(), "home")
	return []string{
		"KUBECONFIG=" + strings.Join(files, string(os.PathListSeparator)), "HOME=" + home,
		"HELM_CACHE_HOME=" + home, "HELM_CONFIG_HOME=" + home, "HELM_DATA_HOME=" + home, "ARGOCD_CONFIG_DIR=" + filepath.Join(home, "argocd"),
	}
}

// Kubectl runs kubectl against the cluster, and returns what it prints.
func (s *Site) Kubectl(ctx context.Context, args ...string) (string, error) {
	return s.run(ctx, toolset.Kubectl, args)
}

// Helm runs helm against the cluster, and returns what it prints.
func (s *Site) Helm(ctx context.Context, args ...string) (string, error) {
	return s.run(ctx, toolset.Helm, args)
}

// run runs a program of the toolset that knows no other cluster.
func (s *Site) run(ctx context.Context, program string, args []string) (string, error) {
	cmd := exec.CommandContext(ctx, s.lab.Tools.Program(program), args...)
	cmd.Env = append(os.Environ(), s.lab.settings([]*Site{s})...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return string(out), fmt.Errorf("%s %s: %w: %s", program, args[0], err, out)
	}
	return string(out), nil
}

// Explain says what is wrong on some sites, as a message of a test that may fail. They are asked when somebody reads it.
func Explain(ctx context.Context, sites ...*Site) fmt.Stringer {
	return explanation(func() string {
		var all strings.Builder
		for _, s := range sites {
			fmt.Fprintln(&all, s.Name+":", s.Explain(context.WithoutCancel(ctx)))
		}
		return all.String()
	})
}

type explanation func() string

// String implements [fmt.Stringer].
func (e explanation) String() string { return e() }

// Explain says what is wrong with the Pods of Argo CD's namespace, as far as Kubernetes and they themselves say it.
func (s *Site) Explain(ctx context.Context) string {
	applications, err := s.Kubectl(ctx, "get", "applications.argoproj.io", "--all-namespaces",
		"-o", "jsonpath={range .items[*]}{.metadata.namespace}/{.metadata.name} {.status.conditions}\n{end}")
	if err != nil {
		applications = err.Error() + "\n"
	}
	return applications + s.ExplainIn(ctx, Namespace, "app.kubernetes.io/part-of in (argocd-agent,argocd)")
}

// ExplainIn says what is wrong with the Pods of a namespace, and what those log that a selector of labels selects.
func (s *Site) ExplainIn(ctx context.Context, namespace, selector string) string {
	var all strings.Builder
	for _, args := range [][]string{
		{"get", "pods,jobs,services", "-o", "wide"}, {"get", "events", "--field-selector", "type=Warning"},
		{"logs", "--all-containers", "--prefix", "--tail=20", "-l", selector},
	} {
		out, err := s.Kubectl(ctx, append(args, "--namespace="+namespace)...)
		all.WriteString(out)
		if err != nil {
			all.WriteString(err.Error() + "\n")
		}
	}
	return all.String()
}
