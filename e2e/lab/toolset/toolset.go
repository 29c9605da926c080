// Package toolset holds the real programs that the lab runs: which ones they are, how they are built from the pinned
// modules under e2e/tools, and where the built ones are kept.
package toolset

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// Names of the programs.
const (
	Etcd              = "etcd"
	APIServer         = "kube-apiserver"
	ControllerManager = "kube-controller-manager"
	Scheduler         = "kube-scheduler"
	Kubectl           = "kubectl"
	Kwok              = "kwok"
	ArgoCDServer      = "argocd-server"
	ArgoCDController  = "argocd-application-controller"
	ArgoCDRepoServer  = "argocd-repo-server"
	ArgoCDAppSets     = "argocd-applicationset-controller"
	ArgoCD            = "argocd" // the command-line client, and all of the above under its other names
)

// Names of files that come with the programs' sources.
const (
	ArgoCDManifests = "namespace-install.yaml"
	ApplicationCRD  = "application-crd.yaml"
	AppProjectCRD   = "appproject-crd.yaml"
	AppSetCRD       = "applicationset-crd.yaml"
	NodeStage       = "node-initialize.yaml"
	HeartbeatStage  = "node-heartbeat.yaml"
	PodReadyStage   = "pod-ready.yaml"
	PodDoneStage    = "pod-complete.yaml"
	PodDeleteStage  = "pod-delete.yaml"
)

// ErrNoRepository means that the working directory is not in this project's repository.
var ErrNoRepository = errors.New("no folder with e2e/tools above the working directory")

// module is one folder of e2e/tools.
type module struct {
	folder   string
	programs []program
	source   string            // the Go module that the files come from
	files    map[string]string // name here => path in that module
}

type program struct {
	name, pkg, flags string
}

// kubeFlags tell the Kubernetes parts their version, which they otherwise learn from their own build scripts only.
const kubeFlags = "-s -w -X k8s.io/component-base/version.gitVersion=v1.36.1" +
	" -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=36"

// modules is what the lab needs. One table, so that a program more is a line more.
func modules() []module {
	return []module{
		{
			folder: "argocd",
			programs: []program{
				{Etcd, "go.etcd.io/etcd/server/v3", kubeFlags},
				{APIServer, "k8s.io/kubernetes/cmd/kube-apiserver", kubeFlags},
				{ControllerManager, "k8s.io/kubernetes/cmd/kube-controller-manager", kubeFlags},
				{Scheduler, "k8s.io/kubernetes/cmd/kube-scheduler", kubeFlags},
				{Kubectl, "k8s.io/kubernetes/cmd/kubectl", kubeFlags},
				{ArgoCD, "github.com/argoproj/argo-cd/v3/cmd", "-s -w"},
			},
			source: "github.com/argoproj/argo-cd/v3",
			files: map[string]string{
				ArgoCDManifests: "manifests/namespace-install.yaml",
				ApplicationCRD:  "manifests/crds/application-crd.yaml",
				AppProjectCRD:   "manifests/crds/appproject-crd.yaml",
				AppSetCRD:       "manifests/crds/applicationset-crd.yaml",
			},
		},
		{
			folder:   "kwok",
			programs: []program{{Kwok, "sigs.k8s.io/kwok/cmd/kwok", "-s -w"}},
			source:   "sigs.k8s.io/kwok",
			files: map[string]string{
				NodeStage:      "kustomize/stage/node/fast/node-initialize.yaml",
				HeartbeatStage: "kustomize/stage/node/heartbeat/node-heartbeat.yaml",
				PodReadyStage:  "kustomize/stage/pod/fast/pod-ready.yaml",
				PodDoneStage:   "kustomize/stage/pod/fast/pod-complete.yaml",
				PodDeleteStage: "kustomize/stage/pod/fast/pod-delete.yaml",
			},
		},
	}
}

// links are other names of a program, by which it knows what to be.
func links() map[string]string {
	return map[string]string{
		ArgoCDServer: ArgoCD, ArgoCDController: ArgoCD, ArgoCDRepoServer: ArgoCD, ArgoCDAppSets: ArgoCD,
	}
}

// Set is the programs in one folder of the cache.
type Set struct {
	sources string // e2e/tools
	dir     string
}

// Locate finds the set that belongs to the pins of a repository, built or not.
func Locate(repository string) (*Set, error) {
	sources := filepath.Join(repository, "e2e", "tools")
	key, err := digest(sources)
	if err != nil {
		return nil, fmt.Errorf("pins of the tools: %w", err)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return nil, fmt.Errorf("place to keep tools in: %w", err)
	}
	return &Set{sources: sources, dir: filepath.Join(cache, "argocd-agent-mesh", "tools", key)}, nil
}

// Repository is the nearest folder above the working directory that holds this project's repository.
func Repository() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("working directory: %w", err)
	}
	for {
		if exists(filepath.Join(dir, "e2e", "tools", "argocd", "go.mod")) {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", ErrNoRepository
		}
		dir = parent
	}
}

// Dir is the folder of the set.
func (s *Set) Dir() string { return s.dir }

// Program is the path of a program, one of the constants of this package.
func (s *Set) Program(name string) string { return filepath.Join(s.dir, name) }

// File is the path of a file, one of the constants of this package.
func (s *Set) File(name string) string { return filepath.Join(s.dir, "files", name) }

// Missing lists what is not built yet.
func (s *Set) Missing() []string {
	var missing []string
	for _, m := range modules() {
		for _, p := range m.programs {
			if !exists(s.Program(p.name)) {
				missing = append(missing, p.name)
			}
		}
		for name := range m.files {
			if !exists(s.File(name)) {
				missing = append(missing, name)
			}
		}
	}
	for name := range links() {
		if !exists(s.Program(name)) {
			missing = append(missing, name)
		}
	}
	return missing
}

// digest names the exact pins and flags that a set is built from.
func digest(sources string) (string, error) {
	hash := sha256.New()
	for _, m := range modules() {
		for _, name := range []string{"go.mod", "go.sum"} {
			data, err := os.ReadFile(filepath.Join(sources, m.folder, name))
			if err != nil {
				return "", err
			}
			// Writing to a hash never fails.
			_, _ = fmt.Fprintf(hash, "%s/%s %d\n", m.folder, name, len(data))
			_, _ = hash.Write(data)
		}
		for _, p := range m.programs {
			_, _ = io.WriteString(hash, strings.Join([]string{p.name, p.pkg, p.flags}, " ")+"\n")
		}
	}
	return hex.EncodeToString(hash.Sum(nil))[:16], nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
