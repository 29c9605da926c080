package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/tools/release/image"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/tools/release/program"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/tools/release/sbom"
)

const (
	// module is the product's.
	module = "github.com/argocd-agent-mesh/argocd-agent-mesh"
	// repository is what the names of its images begin with. The charts have the same as the value image.registry.
	repository = "ghcr.io/argocd-agent-mesh"
	license    = "Apache-2.0"
	// user is who programs run as, and has no other rights: the number that distroless images call nonroot. It is a number since the kubelet
	// cannot see that a name is not root's.
	user = "65532:65532"
)

// product is a program that is published: the folder of its package, and what it and its image are called.
type product struct {
	folder, file, description string
	client                    bool // people run it on machines of their own
}

func products() []product {
	return []product{
		{"principal", "principal", "Argo CD agent: the principal, which agents connect to", false},
		{"agent", "agent", "Argo CD agent: the agent of a spoke cluster", false},
		{"kubeproxy", "kubeproxy", "Argo CD agent: the Kubernetes API proxy of the hub", false},
		{"redisproxy", "redisproxy", "Argo CD agent: the Redis proxy of the hub", false},
		{"xds", "xds", "Argo CD agent: the xDS control plane of the hub", false},
		{"agentctl", "argocd-agentctl", "Argo CD agent: the command line tool", true},
	}
}

// images makes an OCI layout for each program in a folder, with a list of its parts for each platform beside it.
func (r release) images(ctx context.Context, folder string) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "release-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(work) }() // it is a temporary folder
	for _, p := range r.programs {
		if err := r.image(ctx, p, work, folder); err != nil {
			return fmt.Errorf("image of %s: %w", p.folder, err)
		}
	}
	return nil
}

// image makes that of one program.
func (r release) image(ctx context.Context, p product, work, folder string) error {
	var images []v1.Image
	for _, on := range r.platforms {
		file := filepath.Join(work, p.file+"_"+on.os+"_"+on.arch)
		if err := r.build(ctx, p, on, file); err != nil {
			return err
		}
		made, err := r.imageOf(p, on, file)
		if err != nil {
			return err
		}
		images = append(images, made)
		if err := r.list(p, on, file, folder); err != nil {
			return err
		}
		if err := report(p, on, made); err != nil {
			return err
		}
	}
	index, err := image.Index(images...)
	if err != nil {
		return err
	}
	return image.Write(filepath.Join(folder, p.file), repository+"/"+p.file, r.version, index)
}

func (r release) build(ctx context.Context, p product, on platform, file string) error {
	return program.Build{
		Folder: r.root, Package: "./" + p.folder, OS: on.os, Arch: on.arch,
		LinkerFlags: []string{"-X " + module + "/internal/base/version.version=" + r.version, "-X " + module + "/internal/base/version.revision=" + r.revision},
	}.Into(ctx, file)
}

// imageOf makes the image of a program that was built.
func (r release) imageOf(p product, on platform, file string) (v1.Image, error) {
	return image.Build(image.Content{
		Files: map[string]string{"/" + p.file: file},
		Config: v1.Config{
			Entrypoint: []string{"/" + p.file}, User: user, WorkingDir: "/",
			Labels: map[string]string{ // those of the OCI image specification, in its annex on annotations
				"org.opencontainers.image.title":       p.file,
				"org.opencontainers.image.description": p.description,
				"org.opencontainers.image.version":     r.version,
				"org.opencontainers.image.revision":    r.revision,
				"org.opencontainers.image.created":     r.created.Format(time.RFC3339),
				"org.opencontainers.image.licenses":    license,
			},
		},
		Platform: v1.Platform{OS: on.os, Architecture: on.arch}, Created: r.created,
	})
}

// list writes what is in a program that was built.
func (r release) list(p product, on platform, file, folder string) error {
	var text bytes.Buffer
	err := sbom.Write(&text, sbom.Program{
		File: file, Name: p.file, Version: r.version, License: license, Created: r.created,
		Namespace: "https://" + module + "/sbom/" + p.file,
	})
	if err != nil {
		return err
	}
	name := fmt.Sprintf("%s_%s_%s.spdx.json", p.file, on.os, on.arch)
	return os.WriteFile(filepath.Join(folder, name), text.Bytes(), 0o644)
}

// report says how large an image is: what is fetched, which is compressed.
func report(p product, on platform, made v1.Image) error {
	layers, err := made.Layers()
	if err != nil {
		return err
	}
	var size int64
	for _, layer := range layers {
		compressed, err := layer.Size()
		if err != nil {
			return err
		}
		size += compressed
	}
	digest, err := made.Digest()
	if err != nil {
		return err
	}
	fmt.Printf("%-15s %s/%-6s %6.1f MB compressed  %s\n", p.file, on.os, on.arch, float64(size)/1e6, digest)
	return nil
}
