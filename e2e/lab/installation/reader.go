package installation

import (
	"context"
	"path/filepath"
	"strings"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/gitserver"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/toolset"
)

// agentsPort is the port of the hub's node where agents come in.
const agentsPort = "30443"

// Reader is somebody who begins with a page of the docs, and has what it takes for granted: a shell, the programs and images of this checkout, Argo
// CD's manifests and images, and a Git server.
type Reader struct {
	Shell *Shell
	Git   *gitserver.Server // the applications that are deployed

	docs string            // the folder of pages
	here *strings.Replacer // has the lab's own in place of what lies outside of this machine
}

// Reader makes one of a lab whose sites are called "hub" and "spoke", and what comes after these is a spoke too.
func (l *Lab) Reader(ctx context.Context) (*Reader, error) {
	programs, images, err := l.ownImages(ctx)
	if err != nil {
		return nil, err
	}
	theirs, err := l.argocdImages(ctx, toolset.ArgoCDInstall) // those of its core are among them
	if err != nil {
		return nil, err
	}
	if err := l.load(ctx, append(images, theirs...)); err != nil {
		return nil, err
	}
	whole, err := l.argocdManifest(toolset.ArgoCDInstall)
	if err != nil {
		return nil, err
	}
	core, err := l.argocdManifest(toolset.ArgoCDCore)
	if err != nil {
		return nil, err
	}
	r := &Reader{docs: filepath.Join(l.Repository, "docs")}
	if r.Shell, err = l.newShell(filepath.Join(programs, "argocd-agentctl")); err != nil {
		return nil, err
	}
	if r.Git, err = l.StartGit(ctx); err != nil {
		return nil, err
	}
	const published = "https://raw.githubusercontent.com/argoproj/argo-cd/v3.5.7/manifests/"
	const charts = "oci://ghcr.io/argocd-agent-mesh/charts/argocd-agent-"
	version := " --version " + strings.TrimPrefix(l.version, "v")
	hub := l.Sites[0].Node.Address
	r.here = strings.NewReplacer(
		published+"install.yaml", whole, published+"core-install.yaml", core,
		charts+"hub"+version, l.Chart("hub"), charts+"spoke"+version, l.Chart("spoke"),
		// There is no load balancer, and no DNS that knows the hub.
		"server.address=hub.example.com", "server.address="+hub+",principal.service.type=NodePort,principal.service.nodePort="+agentsPort,
		"server: {address: hub.example.com}", "server: {address: "+hub+"}\nprincipal: {service: {type: NodePort, nodePort: "+agentsPort+"}}",
		"--server-address hub.example.com", "--server-address "+hub+" --server-port "+agentsPort,
		"https://github.com/argoproj/argocd-example-apps", r.Git.URL,
	)
	return r, nil
}

// ConfigureArgoCD sets what pages leave to people: terminals are on, ApplicationSets may be in the namespaces of agents, and argocd-server is
// reached by a port of the node, without TLS.
func (r *Reader) ConfigureArgoCD(ctx context.Context) error {
	_, err := r.Shell.Run(ctx, `
kubectl --context hub patch configmap argocd-cm -n argocd --type merge -p '{"data":{"exec.enabled":"true"}}'
kubectl --context hub patch configmap argocd-cmd-params-cm -n argocd --type merge -p '{"data":{"server.insecure":"true",
  "applicationsetcontroller.namespaces":"*","applicationsetcontroller.enable.scm.providers":"false"}}'
kubectl --context hub patch service argocd-server -n argocd -p '{"spec":{"type":"NodePort"}}'
kubectl --context hub rollout restart deployment/argocd-server deployment/argocd-applicationset-controller -n argocd
kubectl --context hub rollout status deployment/argocd-server -n argocd
kubectl --context hub rollout status deployment/argocd-applicationset-controller -n argocd`)
	return err
}

// LogIn logs argocd in, the client on the command line, to the hub that ConfigureArgoCD has configured.
func (r *Reader) LogIn(ctx context.Context, hub *Site) error {
	address, password, err := hub.Login(ctx)
	if err != nil {
		return err
	}
	_, err = r.Shell.Run(ctx, "argocd login "+address+" --plaintext --username admin --password '"+password+"'")
	return err
}
