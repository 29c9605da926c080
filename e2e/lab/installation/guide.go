package installation

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/gitserver"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/toolset"
)

// agentsPort is the port of the hub's node where agents come in.
const agentsPort = "30443"

// Guide is docs/getting-started.md: its commands, as they are written there, but for what lies outside of this machine.
type Guide struct {
	Shell *Shell
	Git   *gitserver.Server // the applications that are deployed

	steps []string // the blocks of commands
}

// Guide reads the page for a lab whose sites are called "hub" and "spoke", and makes all that a reader has who begins with it: the programs and
// images of this checkout, Argo CD's manifests and images, and a Git server.
func (l *Lab) Guide(ctx context.Context) (*Guide, error) {
	product, err := l.BuildProduct(ctx)
	if err != nil {
		return nil, err
	}
	for _, s := range l.Sites {
		if err := product.Load(ctx, s); err != nil {
			return nil, err
		}
	}
	g := &Guide{}
	if g.Shell, err = l.NewShell(product); err != nil {
		return nil, err
	}
	if g.Git, err = l.StartGit(ctx); err != nil {
		return nil, err
	}
	whole, err := l.ArgoCDManifest(ctx, toolset.ArgoCDInstall)
	if err != nil {
		return nil, err
	}
	core, err := l.ArgoCDManifest(ctx, toolset.ArgoCDCore)
	if err != nil {
		return nil, err
	}
	const published = "https://raw.githubusercontent.com/argoproj/argo-cd/v3.5.7/manifests/"
	const charts = "oci://ghcr.io/argocd-agent-mesh/charts/argocd-agent-"
	hub := l.Sites[0].Node.Address
	g.steps, err = commands(filepath.Join(l.Repository, "docs", "getting-started.md"), [][2]string{
		{published + "install.yaml", whole}, {published + "core-install.yaml", core},
		{charts + "hub --version 0.1.0", l.Chart("hub")}, {charts + "spoke --version 0.1.0", l.Chart("spoke")},
		// There is no load balancer, and no DNS that knows the hub.
		{"server.address=hub.example.com", "server.address=" + hub + ",principal.service.type=NodePort,principal.service.nodePort=" + agentsPort},
		{"--server-address hub.example.com", "--server-address " + hub + " --server-port " + agentsPort},
		{"https://github.com/argoproj/argocd-example-apps", g.Git.URL},
	})
	return g, err
}

// commands are the blocks of commands of a page, with some texts replaced. All of these have to be there, and no address of the world may be left.
func commands(page string, replacements [][2]string) ([]string, error) {
	text, err := os.ReadFile(page)
	if err != nil {
		return nil, err
	}
	replaced := string(text)
	for _, r := range replacements {
		if !strings.Contains(replaced, r[0]) {
			return nil, fmt.Errorf("%s does not say %q any more", page, r[0])
		}
		replaced = strings.ReplaceAll(replaced, r[0], r[1])
	}
	var blocks []string
	for i, part := range strings.Split(replaced, "\n```") {
		if i%2 == 0 {
			continue
		}
		if strings.Contains(part, "https://") || strings.Contains(part, "example.com") {
			return nil, fmt.Errorf("%s has an address of the world that the lab does not replace:%s", page, part)
		}
		blocks = append(blocks, part)
	}
	return blocks, nil
}

// Run runs the first block of commands that has a text, with some others replaced, in pairs, and returns what it prints.
func (g *Guide) Run(ctx context.Context, with string, replacements ...string) (string, error) {
	for _, step := range g.steps {
		if strings.Contains(step, with) {
			return g.Shell.Run(ctx, strings.NewReplacer(replacements...).Replace(step))
		}
	}
	return "", fmt.Errorf("the page has no commands with %q", with)
}

// ConfigureArgoCD sets what the page leaves to people: terminals are on, ApplicationSets may be in the namespaces of agents, and argocd-server is
// reached by a port of the node, without TLS.
func (g *Guide) ConfigureArgoCD(ctx context.Context) error {
	_, err := g.Shell.Run(ctx, `
kubectl --context hub patch configmap argocd-cm -n argocd --type merge -p '{"data":{"exec.enabled":"true"}}'
kubectl --context hub patch configmap argocd-cmd-params-cm -n argocd --type merge -p '{"data":{"server.insecure":"true",
  "applicationsetcontroller.namespaces":"*","applicationsetcontroller.enable.scm.providers":"false"}}'
kubectl --context hub patch service argocd-server -n argocd -p '{"spec":{"type":"NodePort"}}'
kubectl --context hub rollout restart deployment/argocd-server deployment/argocd-applicationset-controller -n argocd
kubectl --context hub rollout status deployment/argocd-server -n argocd
kubectl --context hub rollout status deployment/argocd-applicationset-controller -n argocd`)
	return err
}
