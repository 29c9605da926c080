package installation

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/sync/errgroup"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/node"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/toolset"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/tools/release/image"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/tools/release/program"
)

// registry is what the charts have.
const registry = "ghcr.io/argocd-agent-mesh/"

// nobody is the user of our images, and argocdUser that of Argo CD's.
const (
	nobody     = "65532:65532"
	argocdUser = "999:999"
)

// programs are those of ours, by the folder that each is built of.
func programs() map[string]string {
	return map[string]string{
		"principal": "principal", "agent": "agent", "kubeproxy": "kubeproxy", "redisproxy": "redisproxy", "xds": "xds", "agentctl": "argocd-agentctl",
	}
}

// ownImages builds our programs of this checkout as they are published, and images of them. It returns the folder of the programs too.
func (l *Lab) ownImages(ctx context.Context) (folder string, archives []string, err error) {
	if folder, err = l.Host.Folder("product"); err != nil {
		return "", nil, err
	}
	builds, building := errgroup.WithContext(ctx)
	builds.SetLimit(runtime.NumCPU())
	for source, name := range programs() {
		builds.Go(func() error {
			return program.Build{Folder: l.Repository, Package: "./" + source, OS: runtime.GOOS, Arch: runtime.GOARCH}.Into(building, filepath.Join(folder, name))
		})
	}
	if err := builds.Wait(); err != nil {
		return "", nil, err
	}
	for _, name := range programs() {
		archive, err := l.Machine.Image(registry+name+":"+l.version, image.Content{
			Files:  map[string]string{"/" + name: filepath.Join(folder, name)},
			Config: v1.Config{Entrypoint: []string{"/" + name}, User: nobody, WorkingDir: "/"},
		})
		if err != nil {
			return "", nil, err
		}
		archives = append(archives, archive)
	}
	return folder, archives, nil
}

// load gives all nodes images.
func (l *Lab) load(ctx context.Context, archives []string) error {
	var nodes errgroup.Group
	for _, s := range l.Sites {
		nodes.Go(func() error {
			for _, archive := range archives {
				if err := s.Node.Load(ctx, archive); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return nodes.Wait()
}

// argocdImages makes the images that a file of Argo CD's manifests names, of the lab's programs and Debian's: Argo CD with Git and a shell, and Redis.
func (l *Lab) argocdImages(ctx context.Context, file string) ([]string, error) {
	manifests, err := os.ReadFile(l.Tools.File(file))
	if err != nil {
		return nil, err
	}
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
		reference, err := named(string(manifests), name)
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
