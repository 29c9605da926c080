package installation

import (
	"context"
	"errors"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/node"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/toolset"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/tools/release/image"
)

// istioUser is the user of Istio's images, whose connections its redirection leaves alone.
const istioUser = "1337:1337"

// istioImages makes the two images that Istio's charts name, of programs that are built here: istiod, and what is in sidecars and gateways, which is
// its agent, the lab's Envoy, and this machine's iptables.
func (l *Lab) istioImages(ctx context.Context) ([]string, error) {
	const at = "/usr/local/bin/"
	istiod, err := l.Machine.Image("lab.local/pilot:1", image.Content{
		Files:  map[string]string{at + toolset.PilotDiscovery: l.Tools.Program(toolset.PilotDiscovery)},
		Config: v1.Config{Entrypoint: []string{at + toolset.PilotDiscovery}, User: istioUser},
	})
	if err != nil {
		return nil, err
	}
	const iptables = "xtables-nft-multi"
	programs, err := node.Dynamic(ctx, l.Tools.Program(toolset.Envoy), iptables, toolset.BusyBox)
	if err != nil {
		return nil, err
	}
	files := programs.Files
	files[at+toolset.PilotAgent] = l.Tools.Program(toolset.PilotAgent)
	files["/var/lib/istio/envoy/envoy_bootstrap_tmpl.json"] = l.Tools.File(toolset.EnvoyBootstrap)
	extensions, err := filepath.Glob("/usr/lib/*/xtables/*.so")
	if err != nil {
		return nil, err
	}
	if len(extensions) == 0 {
		return nil, errors.New("iptables has no extensions in /usr/lib/*/xtables: install Debian's package iptables")
	}
	for _, extension := range extensions {
		files[extension] = extension
	}
	links := map[string]string{at + toolset.Envoy: programs.Paths[l.Tools.Program(toolset.Envoy)]}
	for _, name := range []string{
		"iptables", "iptables-nft", "iptables-save", "iptables-restore", "iptables-nft-save", "iptables-nft-restore",
		"ip6tables", "ip6tables-nft", "ip6tables-save", "ip6tables-restore", "ip6tables-nft-save", "ip6tables-nft-restore",
	} {
		links["/usr/sbin/"+name] = programs.Paths[iptables]
	}
	for _, name := range []string{"sh", "cat", "ls", "ps"} {
		links["/bin/"+name] = programs.Paths[toolset.BusyBox]
	}
	proxy, err := l.Machine.Image("lab.local/proxyv2:1", image.Content{
		Files: files, Links: links, Folders: []string{"/tmp"},
		Config: v1.Config{
			Entrypoint: []string{at + toolset.PilotAgent}, User: istioUser, Env: []string{"PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
		},
	})
	return []string{istiod, proxy}, err
}
