package node

import (
	"bytes"
	"context"
	_ "embed"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"text/template"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/cluster"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/host"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/process"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/toolset"
)

// Addresses of Services, as the lab's API servers have them, and of the DNS among them.
const (
	services = "10.96.0.0/16"
	dns      = "10.96.0.10"
)

// kubeletPort is the kubelet's, for logs and commands.
const kubeletPort = "10250"

// The configuration of a node's programs, as templates of a Node.
var (
	//go:embed config/containerd.toml
	containerdConfig string
	//go:embed config/cni.json
	cniConfig string
	//go:embed config/kubelet.yaml
	kubeletConfig string
	//go:embed config/kube-proxy.yaml
	kubeProxyConfig string
	//go:embed manifests/dns.yaml
	dnsManifest string
)

// Node is one that has joined its cluster. Its programs may be stopped and started: Pods go on meanwhile.
type Node struct {
	Name      string
	Address   string // that Services of type NodePort are reached at, from this machine and from other nodes
	Kubelet   *process.Process
	KubeProxy *process.Process
	// Containerd has all Pods' containers; it may be started again too.
	Containerd *process.Process

	machine *Machine
	cluster *cluster.Cluster
	index   int
	space   string // the network namespace
}

// Join has a node of the cluster's own name join it, and returns when it is ready and the cluster has DNS.
func (m *Machine) Join(ctx context.Context, c *cluster.Cluster) (*Node, error) {
	index := len(m.nodes) + 1
	n := &Node{
		Name: c.Name, Address: m.slot.node(index), machine: m, cluster: c, index: index, space: m.slot.namespace(index),
	}
	if err := n.join(ctx); err != nil {
		return nil, fmt.Errorf("node %s: %w", n.Name, err)
	}
	return n, nil
}

func (n *Node) join(ctx context.Context) error {
	if err := n.machine.network(ctx, n); err != nil {
		return err
	}
	n.machine.nodes = append(n.machine.nodes, n)
	for _, group := range []string{n.PodsCgroup(), n.systemCgroup()} {
		if err := makeCgroup(group); err != nil {
			return err
		}
	}
	if err := n.startContainerd(ctx); err != nil {
		return err
	}
	images, err := n.machine.ownImages()
	if err != nil {
		return err
	}
	for _, image := range images {
		if err := n.Load(ctx, image); err != nil {
			return err
		}
	}
	if err := n.startKubernetes(ctx); err != nil {
		return err
	}
	if _, err := n.cluster.Wait(ctx, n.selection(), Ready); err != nil {
		return fmt.Errorf("ready: %w", err)
	}
	manifest, err := n.render("DNS", dnsManifest)
	if err != nil {
		return err
	}
	if err := n.cluster.ApplyYAML(ctx, manifest, "kube-system"); err != nil {
		return fmt.Errorf("DNS: %w", err)
	}
	_, err = n.cluster.Wait(ctx, cluster.Selection{
		Resource: schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}, Namespace: "kube-system", Name: "coredns",
	}, func(object *unstructured.Unstructured) bool {
		return object != nil && cluster.Condition(object, "Available") == "True"
	})
	return err
}

// Ready holds for a node, or a Pod, that is there and ready.
func Ready(object *unstructured.Unstructured) bool {
	return object != nil && cluster.Condition(object, string(corev1.NodeReady)) == "True"
}

func (n *Node) selection() cluster.Selection {
	return cluster.Selection{Resource: schema.GroupVersionResource{Version: "v1", Resource: "nodes"}, Name: n.Name}
}

// What the templates of the configuration ask for.

// Dir is the node's folder.
func (n *Node) Dir() string { return filepath.Join(n.machine.host.Dir(), "nodes", n.Name) }

// Socket is containerd's.
func (n *Node) Socket() string { return filepath.Join(n.Dir(), "containerd.sock") }

// Pods are the addresses of its Pods.
func (n *Node) Pods() string { return n.machine.slot.pods(n.index) }

// AllPods are those of all nodes' Pods.
func (n *Node) AllPods() string { return n.machine.slot.address(0, 0) + "/16" }

// PodsCgroup is where the kubelet puts Pods.
func (n *Node) PodsCgroup() string { return n.machine.slot.cgroup() + "/" + n.Name + "-pods" }

// systemCgroup is where containerd is, with the processes by which it watches containers: they outlive it.
func (n *Node) systemCgroup() string { return n.machine.slot.cgroup() + "/" + n.Name + "-system" }

// Runc is its path.
func (n *Node) Runc() (string, error) { return toolset.Find(toolset.Runc) }

// Plugins is the folder of CNI's.
func (n *Node) Plugins() string { return toolset.CNIPlugins }

// DNS is the address of the cluster's.
func (n *Node) DNS() string { return dns }

// Pause is the image of the container that holds a Pod's namespaces.
func (n *Node) Pause() string { return ShellImage }

// Known are the nodes that there were before it, and itself.
func (n *Node) Known() []*Node { return n.machine.nodes[:n.index] }

// render makes a configuration of its template.
func (n *Node) render(name, text string) ([]byte, error) {
	parsed, err := template.New(name).Parse(text)
	if err != nil {
		return nil, err
	}
	var made bytes.Buffer
	if err := parsed.Execute(&made, n); err != nil {
		return nil, err
	}
	return made.Bytes(), nil
}

// write writes a configuration, and returns its path.
func (n *Node) write(name, text string) (string, error) {
	made, err := n.render(name, text)
	if err != nil {
		return "", err
	}
	return n.machine.host.Write(filepath.Join("nodes", n.Name, name), made)
}

func (n *Node) startContainerd(ctx context.Context) error {
	if _, err := n.write(filepath.Join("cni", "10-pods.conflist"), cniConfig); err != nil {
		return err
	}
	config, err := n.write("containerd.toml", containerdConfig)
	if err != nil {
		return err
	}
	program, err := toolset.Find(toolset.Containerd)
	if err != nil {
		return err
	}
	n.Containerd, err = n.launch(ctx, "containerd", program, []string{"--config", config}, func(ctx context.Context) error { return n.ctr(ctx, "version") })
	return err
}

func (n *Node) startKubernetes(ctx context.Context) error {
	credentials, err := n.cluster.KubeconfigFor(cluster.NodeUser(n.Name), n.cluster.Address, "default")
	if err != nil {
		return err
	}
	if _, err := n.machine.host.Write(filepath.Join("nodes", n.Name, "ca.crt"), n.cluster.CA()); err != nil {
		return err
	}
	config, err := n.write("kubelet.yaml", kubeletConfig)
	if err != nil {
		return err
	}
	n.Kubelet, err = n.launch(ctx, "kubelet", n.machine.tools.Program(toolset.Kubelet), []string{
		"--config=" + config, "--kubeconfig=" + credentials, "--root-dir=" + filepath.Join(n.Dir(), "kubelet"), "--hostname-override=" + n.Name,
		"--node-ip=" + n.Address, "--cert-dir=" + filepath.Join(n.Dir(), "kubelet", "pki"),
	}, process.Listens(net.JoinHostPort(n.Address, kubeletPort)))
	if err != nil {
		return err
	}
	config, err = n.write("kube-proxy.yaml", kubeProxyConfig)
	if err != nil {
		return err
	}
	n.KubeProxy, err = n.launch(ctx, "kube-proxy", n.machine.tools.Program(toolset.KubeProxy), []string{"--config=" + config}, nil)
	return err
}

// Kubeconfig is the admin's, for kube-proxy.
func (n *Node) Kubeconfig() string { return n.cluster.Kubeconfig }

// launch starts a program in the node's network namespace, with what it starts in the node's cgroup.
func (n *Node) launch(ctx context.Context, name, path string, args []string, ready func(context.Context) error) (*process.Process, error) {
	trees, err := hierarchies()
	if err != nil {
		return nil, err
	}
	var join strings.Builder
	for _, tree := range trees {
		fmt.Fprintf(&join, "echo $$ > %s || exit; ", filepath.Join(tree, n.systemCgroup(), "cgroup.procs"))
	}
	script := join.String() + `exec nsenter --net=/run/netns/` + n.space + ` "$@"`
	p, _, err := n.machine.host.Launch(ctx, host.Program{
		Name: n.Name + "-" + name, Path: "/bin/sh", Env: []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"},
		Args:  func([]int) []string { return append([]string{"-c", script, name, path}, args...) },
		Ready: func([]int) func(context.Context) error { return ready },
	})
	return p, err
}

// Load gives the node an image, of an OCI archive.
func (n *Node) Load(ctx context.Context, archive string) error {
	return n.ctr(ctx, "--namespace=k8s.io", "images", "import", archive)
}

func (n *Node) ctr(ctx context.Context, args ...string) error {
	program, err := toolset.Find(toolset.Ctr)
	if err != nil {
		return err
	}
	if out, err := exec.CommandContext(ctx, program, append([]string{"--address=" + n.Socket()}, args...)...).CombinedOutput(); err != nil {
		return fmt.Errorf("ctr: %w: %s", err, out)
	}
	return nil
}
