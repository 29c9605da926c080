package lab

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/pki"
)

// agentctl is what people call the program, which is built from the folder agentctl.
const agentctl = "argocd-agentctl"

// Agentctl runs argocd-agentctl with a kubeconfig of all clusters, of which the hub is the current one, and returns what it
// prints.
func (l *Lab) Agentctl(ctx context.Context, args ...string) (string, error) {
	if err := l.build(ctx); err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, l.AgentctlPath(), args...)
	cmd.Env = []string{"KUBECONFIG=" + l.Kubeconfigs()}
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("argocd-agentctl %s: %w\n%s", strings.Join(args, " "), err, complaints.String())
	}
	return string(out), err
}

// AgentctlPath is the path of argocd-agentctl.
func (l *Lab) AgentctlPath() string { return l.binary(agentctl) }

// Kubeconfigs is a KUBECONFIG of all clusters. Contexts are called as the clusters: "hub", which is the current one, and
// "spoke-" with the name of a spoke.
func (l *Lab) Kubeconfigs() string {
	kubeconfigs := []string{l.Hub.Kubeconfig}
	for _, name := range l.options.Spokes {
		kubeconfigs = append(kubeconfigs, l.spokes[name].Kubeconfig)
	}
	return strings.Join(kubeconfigs, string(filepath.ListSeparator))
}

// furnish does what an administrator would, by argocd-agentctl: a CA and certificates on the hub, and what each
// spoke's agent needs, on both.
func (l *Lab) furnish(ctx context.Context) error {
	if _, err := l.Agentctl(ctx, "pki", "init"); err != nil {
		return err
	}
	if err := l.loadCA(ctx); err != nil {
		return err
	}
	work, ctx := errgroup.WithContext(ctx)
	addresses := []string{"127.0.0.1"}
	for i := range maxReplicas {
		addresses = append(addresses, replicaAddress(i))
	}
	for _, server := range []string{"principal", "resource-proxy", "xds"} {
		work.Go(func() error {
			_, err := l.Agentctl(ctx, "pki", "issue", server, "--dns=localhost", "--ip="+strings.Join(addresses, ","))
			return err
		})
	}
	for _, name := range l.options.Spokes {
		work.Go(func() error {
			_, err := l.Agentctl(ctx, "pki", "issue", "agent", name, "--agent-context="+l.spokes[name].Name)
			return err
		})
		work.Go(func() error { return l.RegisterAgent(ctx, name) })
	}
	return work.Wait()
}

// loadCA reads the CA, for tests that issue their own certificates.
func (l *Lab) loadCA(ctx context.Context) error {
	found, err := l.Hub.Kubernetes.CoreV1().Secrets(CANamespace).Get(ctx, caSecret, metav1.GetOptions{})
	if err != nil {
		return err
	}
	l.CA, err = pki.LoadCA(found.Data[corev1.TLSCertKey], found.Data[corev1.TLSPrivateKeyKey])
	return err
}

// RegisterAgent lets the hub know of an agent: its namespace and cluster Secret.
func (l *Lab) RegisterAgent(ctx context.Context, name string) error {
	if err := l.Hub.Apply(ctx, namespaceObject(name)); err != nil {
		return err
	}
	args := []string{"agent", "create", name, "--upsert"}
	if l.Kubeproxy != nil {
		args = append(args, "--resource-proxy-server="+l.Kubeproxy.Address)
	}
	_, err := l.Agentctl(ctx, args...)
	return err
}

// mounted returns a Secret on the hub as a Pod would have it that mounts it.
func (l *Lab) mounted(ctx context.Context, name string) (*Certificates, error) {
	found, err := l.Hub.Kubernetes.CoreV1().Secrets(Namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return &Certificates{
		CA:          found.Data[corev1.ServiceAccountRootCAKey],
		Certificate: found.Data[corev1.TLSCertKey], Key: found.Data[corev1.TLSPrivateKeyKey],
	}, nil
}
