package installation

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/node"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/toolset"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/tools/release/image"
)

// registry and version are what the charts have.
const (
	registry = "ghcr.io/argocd-agent-mesh/"
	version  = "v0.1.0"
)

// nobody is the user of our images, and argocdUser that of Argo CD's.
const (
	nobody     = "65532:65532"
	argocdUser = "999:999"
)

// Product is our programs, built as they are published, and their images.
type Product struct {
	Agentctl string // the path of argocd-agentctl

	archives []string
}

// programs are the folders of ours, by the name of the program.
func programs() map[string]string {
	return map[string]string{
		"principal": "principal", "agent": "agent", "kubeproxy": "kubeproxy", "redisproxy": "redisproxy", "xds": "xds", "argocd-agentctl": "agentctl",
	}
}

// BuildProduct builds the programs of this checkout, and their images.
func (l *Lab) BuildProduct(ctx context.Context) (*Product, error) {
	dir, err := l.Host.Folder("product")
	if err != nil {
		return nil, err
	}
	p := &Product{Agentctl: filepath.Join(dir, "argocd-agentctl")}
	for name, folder := range programs() {
		cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", filepath.Join(dir, name), "./"+folder)
		cmd.Dir, cmd.Env = l.Repository, append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
		if out, err := cmd.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("build %s: %w: %s", name, err, out)
		}
		archive, err := l.Machine.Image(registry+name+":"+version, image.Content{
			Files:  map[string]string{"/" + name: filepath.Join(dir, name)},
			Config: v1.Config{Entrypoint: []string{"/" + name}, User: nobody, WorkingDir: "/"},
		})
		if err != nil {
			return nil, err
		}
		p.archives = append(p.archives, archive)
	}
	return p, nil
}

// Load gives a site's node the images.
func (p *Product) Load(ctx context.Context, s *Site) error { return s.load(ctx, p.archives) }

func (s *Site) load(ctx context.Context, archives []string) error {
	for _, archive := range archives {
		if err := s.Node.Load(ctx, archive); err != nil {
			return err
		}
	}
	return nil
}

// argocdImages makes the images that Argo CD's manifests name, of the lab's programs and Debian's: Argo CD with Git and a shell, and Redis.
func (l *Lab) argocdImages(ctx context.Context, manifests string) ([]string, error) {
	argocd, err := l.argocdContent(ctx)
	if err != nil {
		return nil, err
	}
	redis, err := node.Dynamic(ctx, toolset.Redis)
	if err != nil {
		return nil, err
	}
	at := redis.Paths[toolset.Redis]
	var archives []string
	for name, content := range map[string]image.Content{
		"/argocd": argocd,
		"/redis":  {Files: redis.Files, Config: v1.Config{Entrypoint: []string{at}, User: argocdUser}},
	} {
		reference, err := named(manifests, name)
		if err != nil {
			return nil, err
		}
		archive, err := l.Machine.Image(reference, content)
		if err != nil {
			return nil, err
		}
		archives = append(archives, archive)
	}
	return archives, nil
}

// named finds the image in manifests whose repository ends so.
func named(manifests, repository string) (string, error) {
	found := regexp.MustCompile(`image: (\S+` + regexp.QuoteMeta(repository) + `:\S+)`).FindStringSubmatch(manifests)
	if found == nil {
		return "", fmt.Errorf("no image %s is named by the manifests of Argo CD", strings.TrimPrefix(repository, "/"))
	}
	return found[1], nil
}

// argocdContent is Argo CD's image, as far as its programs need it here: without GPG and what makes manifests of anything but YAML and Helm charts.
func (l *Lab) argocdContent(ctx context.Context) (image.Content, error) {
	git, err := node.Dynamic(ctx, toolset.Git)
	if err != nil {
		return image.Content{}, err
	}
	busybox, err := node.Dynamic(ctx, toolset.BusyBox)
	if err != nil {
		return image.Content{}, err
	}
	users, err := l.Host.Write(filepath.Join("images", "passwd"), []byte("argocd:x:999:999::/home/argocd:/bin/sh\n"))
	if err != nil {
		return image.Content{}, err
	}
	// It verifies commits, and nobody signs any here.
	verifier, err := l.Host.Write(filepath.Join("images", "git-verify-wrapper.sh"), []byte("#!/bin/sh\nexit 0\n"))
	if err != nil {
		return image.Content{}, err
	}
	if err := os.Chmod(verifier, 0o700); err != nil {
		return image.Content{}, err
	}
	const programs = "/usr/local/bin/"
	files := map[string]string{
		programs + "argocd": l.Tools.Program(toolset.ArgoCD), programs + "helm": l.Tools.Program(toolset.Helm), "/etc/passwd": users,
		programs + "git-verify-wrapper.sh": verifier,
	}
	maps.Copy(files, git.Files)
	maps.Copy(files, busybox.Files)
	// Git runs itself from here for parts of its work.
	links := map[string]string{"/usr/lib/git-core/git": git.Paths[toolset.Git]}
	for _, name := range []string{"sh", "cp", "ln", "cat", "ls", "env"} {
		links["/bin/"+name] = busybox.Paths[toolset.BusyBox]
	}
	for _, name := range []string{
		toolset.ArgoCDServer, toolset.ArgoCDRepoServer, toolset.ArgoCDController, toolset.ArgoCDAppSets, "argocd-notifications", "argocd-cmp-server",
	} {
		links[programs+name] = programs + "argocd"
	}
	return image.Content{
		Files: files, Links: links, Folders: []string{"/tmp", "/home/argocd", "/app/config"},
		Config: v1.Config{
			User: argocdUser, WorkingDir: "/home/argocd",
			Env: []string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=/home/argocd", "ARGOCD_GPG_ENABLED=false"},
		},
	}, nil
}
