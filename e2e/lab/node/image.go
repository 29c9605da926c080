package node

import (
	"archive/tar"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/toolset"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/tools/release/image"
)

// Images that every node has: BusyBox, for shells and small servers, and CoreDNS.
const (
	ShellImage = "lab.local/busybox:1"
	dnsImage   = "lab.local/coredns:1"
)

// Image writes an OCI archive of an image made of files of this machine, in the host's folder, and returns its path.
func (m *Machine) Image(reference string, content image.Content) (string, error) {
	name, tag, found := strings.Cut(reference, ":")
	if !found {
		return "", fmt.Errorf("image %s: want a name and a tag", reference)
	}
	content.Platform, content.Created = v1.Platform{OS: "linux", Architecture: runtime.GOARCH}, time.Unix(0, 0).UTC()
	made, err := image.Build(content)
	if err != nil {
		return "", fmt.Errorf("image %s: %w", reference, err)
	}
	index, err := image.Index(made)
	if err != nil {
		return "", fmt.Errorf("image %s: %w", reference, err)
	}
	layout, err := m.host.Folder("images", strings.ReplaceAll(reference, "/", "_"))
	if err != nil {
		return "", err
	}
	if err := image.Write(layout, name, tag, index); err != nil {
		return "", err
	}
	return layout + ".tar", archive(layout, layout+".tar")
}

// archive puts a folder into a file.
func archive(folder, file string) error {
	to, err := os.Create(file)
	if err != nil {
		return err
	}
	w := tar.NewWriter(to)
	return errors.Join(w.AddFS(os.DirFS(folder)), w.Close(), to.Close())
}

// ownImages are those that nodes themselves need.
func (m *Machine) ownImages() ([]string, error) {
	busybox, err := toolset.Find(toolset.BusyBox)
	if err != nil {
		return nil, err
	}
	if busybox, err = filepath.EvalSymlinks(busybox); err != nil {
		return nil, err
	}
	links := make(map[string]string)
	for _, name := range []string{"sh", "sleep", "cat", "echo", "ls", "wget", "nc", "nslookup", "httpd", "tar", "env", "id"} {
		links["/bin/"+name] = "/bin/busybox"
	}
	shell, err := m.Image(ShellImage, image.Content{
		Files: map[string]string{"/bin/busybox": busybox}, Links: links, Folders: []string{"/tmp"},
		Config: v1.Config{Entrypoint: []string{"/bin/busybox"}, Cmd: []string{"sleep", "1000000000"}, User: "65535:65535", Env: []string{"PATH=/bin"}},
	})
	if err != nil {
		return nil, err
	}
	server, err := m.Image(dnsImage, image.Content{
		Files:  map[string]string{"/coredns": m.tools.Program(toolset.CoreDNS)},
		Config: v1.Config{Entrypoint: []string{"/coredns"}, User: "65532:65532"},
	})
	return []string{shell, server}, err
}
