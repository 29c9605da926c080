package cluster

import (
	"context"
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/host"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/toolset"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/pki"
)

// kubeletClient is who the API server is to kubelets.
const kubeletClient = "kube-apiserver-kubelet-client"

// writeForNodes writes what the API server proves to kubelets who it is by.
func (f *pkiFiles) writeForNodes(options Options) error {
	pair, err := options.CA.IssueClient(pki.ClientOptions{CommonName: kubeletClient})
	if err != nil {
		return err
	}
	for _, file := range []struct {
		path *string
		name string
		data []byte
	}{{&f.ca, "ca.crt", options.CA.PEM().Certificate}, {&f.client, "kubelet-client.crt", pair.Certificate}, {&f.clientKey, "kubelet-client.key", pair.Key}} {
		if *file.path, err = options.Host.Write(options.file(file.name), file.data); err != nil {
			return err
		}
	}
	return nil
}

// nodesArgs are the API server's where real nodes join: they and their Pods are in other network namespaces, have ServiceAccounts, and are
// where webhooks are, which are called at the addresses of Pods since nobody here knows those of Services.
func (c *Cluster) nodesArgs() []string {
	return []string{
		"--bind-address=" + c.nodes.Address.String(), "--advertise-address=" + c.nodes.Address.String(),
		"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction", "--enable-aggregator-routing=true",
		"--kubelet-preferred-address-types=InternalIP", "--kubelet-client-certificate=" + c.files.client, "--kubelet-client-key=" + c.files.clientKey,
	}
}

// serveNodes starts all controllers and the scheduler, and lets the API server ask kubelets.
func (c *Cluster) serveNodes(ctx context.Context) error {
	_, err := c.Kubernetes.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: kubeletClient},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "system:kubelet-api-admin"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: kubeletClient}},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("right to ask kubelets: %w", err)
	}
	c.ControllerManager, _, err = c.host.Launch(ctx, host.Program{
		Name: c.Name + "-kube-controller-manager", Path: c.tools.Program(toolset.ControllerManager),
		Args: func([]int) []string {
			return []string{
				"--kubeconfig=" + c.Kubeconfig, "--leader-elect=false", "--secure-port=0", "--profiling=false", "--kube-api-qps=200", "--kube-api-burst=400",
				"--root-ca-file=" + c.files.ca, "--service-account-private-key-file=" + c.files.key, "--allocate-node-cidrs=false",
			}
		},
	})
	if err != nil {
		return err
	}
	return c.startScheduler(ctx)
}
