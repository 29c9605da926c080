package cluster

import (
	"bytes"
	"context"
	_ "embed" // for a program of the containers
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/host"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/port"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/process"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/toolset"
)

// NodeName is the name of the one node of a cluster with Pods.
const NodeName = "node"

// ForwardedPort is the port of every container that a port-forward gets through to what PodPortFile says. Others are an echo.
const ForwardedPort = 8000

// PodLog is what every container has logged.
const PodLog = "hello from a fake container\n"

// Controllers of Kubernetes by the names that its controller manager knows them by.
const (
	// namespaceController ends namespaces that are deleted, with all that is in them.
	namespaceController = "namespace"
	podControllers      = namespaceController + ",garbagecollector,deployment,replicaset,job,endpointslice,serviceaccount"
)

// startControllers starts controllers of Kubernetes.
func (c *Cluster) startControllers(ctx context.Context, names string) error {
	var err error
	c.ControllerManager, _, err = c.host.Launch(ctx, host.Program{
		Name: c.Name + "-kube-controller-manager", Path: c.tools.Program(toolset.ControllerManager),
		Args: func([]int) []string {
			return []string{
				"--kubeconfig=" + c.Kubeconfig, "--leader-elect=false", "--secure-port=0", "--profiling=false",
				"--controllers=" + names, "--kube-api-qps=200", "--kube-api-burst=400",
			}
		},
	})
	return err
}

// startPods starts what turns a Deployment into running Pods.
func (c *Cluster) startPods(ctx context.Context) error {
	if err := c.startControllers(ctx, podControllers); err != nil {
		return err
	}
	if err := c.startScheduler(ctx); err != nil {
		return err
	}
	if err := c.startNode(ctx); err != nil {
		return err
	}
	return c.joinNode(ctx)
}

func (c *Cluster) startScheduler(ctx context.Context) error {
	var err error
	c.Scheduler, _, err = c.host.Launch(ctx, host.Program{
		Name: c.Name + "-kube-scheduler", Path: c.tools.Program(toolset.Scheduler),
		Args: func([]int) []string {
			return []string{"--kubeconfig=" + c.Kubeconfig, "--leader-elect=false", "--secure-port=0", "--profiling=false"}
		},
	})
	return err
}

func (c *Cluster) startNode(ctx context.Context) error {
	config, err := c.nodeConfig()
	if err != nil {
		return fmt.Errorf("configuration of the fake node: %w", err)
	}
	programs, err := c.containerPrograms()
	if err != nil {
		return fmt.Errorf("programs of the fake containers: %w", err)
	}
	c.Node, _, err = c.host.Launch(ctx, host.Program{
		Name: c.Name + "-kwok", Path: c.tools.Program(toolset.Kwok), Ports: 1,
		Env: []string{"PATH=" + programs + string(filepath.ListSeparator) + os.Getenv("PATH")},
		Args: func(ports []int) []string {
			return []string{
				"--kubeconfig=" + c.Kubeconfig, "--config=" + config, "--manage-all-nodes=true",
				"--node-ip=127.0.0.1", "--node-port=" + strconv.Itoa(ports[0]),
				"--server-address=" + port.Address(ports[0]),
				"--tls-cert-file=" + c.files.certificate, "--tls-private-key-file=" + c.files.key,
			}
		},
		Ready: func(ports []int) func(context.Context) error { return process.Listens(port.Address(ports[0])) },
	})
	return err
}

// nodeConfig writes how nodes and pods of this cluster behave: as kwok's own fast stages say, with a log, a shell, and an echo at
// each port.
func (c *Cluster) nodeConfig() (string, error) {
	var config bytes.Buffer
	for _, stage := range []string{
		toolset.NodeStage, toolset.HeartbeatStage, toolset.PodReadyStage, toolset.PodDoneStage, toolset.PodDeleteStage,
	} {
		data, err := os.ReadFile(c.tools.File(stage))
		if err != nil {
			return "", err
		}
		config.Write(data)
		config.WriteString("\n---\n")
	}
	log, err := c.host.Write(filepath.Join("clusters", c.Name, "pod.log"), []byte("2026-01-01T00:00:00.000000000Z stdout F "+PodLog))
	if err != nil {
		return "", err
	}
	c.PodLogFile = log
	c.PodPortFile = filepath.Join(filepath.Dir(log), "pod-port")
	connect := fmt.Sprintf(`exec 3<>"/dev/tcp/127.0.0.1/$(cat %s)" && { cat <&3 & cat >&3; }`, c.PodPortFile)
	fmt.Fprintf(&config, `apiVersion: kwok.x-k8s.io/v1alpha1
kind: ClusterLogs
metadata: {name: every-container}
spec: {logs: [{logsFile: %q, follow: true}]}
---
apiVersion: kwok.x-k8s.io/v1alpha1
kind: ClusterExec
metadata: {name: every-container}
spec: {execs: [{local: {}}]}
---
apiVersion: kwok.x-k8s.io/v1alpha1
kind: ClusterPortForward
metadata: {name: every-container}
spec: {forwards: [{ports: [%d], command: [bash, -c, %q]}, {command: [cat]}]}
`, log, ForwardedPort, connect)
	return c.host.Write(filepath.Join("clusters", c.Name, "kwok.yaml"), config.Bytes())
}

// tar is a program of the containers, see there.
//
//go:embed tar
var tar []byte

// containerPrograms writes the programs that containers have beside those of this machine, and returns their folder.
func (c *Cluster) containerPrograms() (string, error) {
	path, err := c.host.Write(filepath.Join("clusters", c.Name, "container", "tar"), tar)
	if err != nil {
		return "", err
	}
	return filepath.Dir(path), os.Chmod(path, 0o700)
}

// joinNode creates the node and waits until kwok has made it ready, then lets Pods on it: it is the node lifecycle
// controller, which does not run here, that would.
func (c *Cluster) joinNode(ctx context.Context) error {
	nodes := schema.GroupVersionResource{Version: "v1", Resource: "nodes"}
	node := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Node",
		"metadata": map[string]any{
			"name":   NodeName,
			"labels": map[string]any{"kubernetes.io/hostname": NodeName, "kubernetes.io/os": "linux"},
		},
	}}
	if err := c.Apply(ctx, node); err != nil {
		return err
	}
	_, err := c.Wait(ctx, Selection{Resource: nodes, Name: NodeName}, func(node *unstructured.Unstructured) bool {
		return node != nil && Condition(node, "Ready") == "True"
	})
	if err != nil {
		return err
	}
	return c.Update(ctx, Selection{Resource: nodes, Name: NodeName}, func(node *unstructured.Unstructured) {
		unstructured.RemoveNestedField(node.Object, "spec", "taints")
	})
}
