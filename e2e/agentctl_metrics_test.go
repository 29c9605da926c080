package e2e_test

import (
	"net/url"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/pki"
)

// metricsPod is the principal's Pod and the Service of its metrics. The Pod leads to the lab's principal, which runs in none.
const metricsPod = `
apiVersion: v1
kind: Service
metadata: {name: argocd-agent-principal-metrics}
spec: {selector: {app: principal}, ports: [{name: metrics, port: 8000}]}
---
apiVersion: v1
kind: Pod
metadata: {name: principal, labels: {app: principal}}
spec: {automountServiceAccountToken: false, containers: [{name: principal, image: principal}]}
`

// Whoever has a kubeconfig and nothing else can ask principals whose metrics need TLS and a token.
func TestMetricsWithTLSAreAskedThroughAPortForward(t *testing.T) {
	t.Parallel()
	a, spoke := newAdmin(t), shared.Spoke("b")
	pair, err := shared.CA.IssueServer(pki.ServerOptions{Names: []string{"argocd-agent-principal-metrics." + a.hub + ".svc"}})
	require.NoError(t, err)
	write := func(name string, text []byte) string {
		path, err := shared.Host.Write(a.hub+"/"+name, text)
		require.NoError(t, err)
		return path
	}
	key := write("tls.key", pair.Key)
	certificate := write("tls.crt", pair.Certificate)
	ca := write("ca.crt", shared.CA.PEM().Certificate)
	principal := newPrincipal(t, lab.PrincipalOptions{Args: []string{"--metrics-tls-cert=" + certificate, "--metrics-tls-key=" + key, "--pod-name=principal-7"}})
	s := startSite(t, unique("forwarded"), lab.AgentOptions{Principal: principal}).connected(t)

	at, err := url.Parse(principal.MetricsURL)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(spoke.PodPortFile, []byte(at.Port()), 0o600))
	require.NoError(t, spoke.ApplyYAML(t.Context(), []byte(metricsPod), a.hub))
	podRuns(t, spoke, a.hub, "principal")

	// The spoke stands for a hub: it has Pods. An agent that is known there is the one that is connected.
	secret, err := shared.Hub.Kubernetes.CoreV1().Secrets(lab.Namespace).Get(t.Context(), "cluster-"+s.name, metav1.GetOptions{})
	require.NoError(t, err)
	secret.ObjectMeta = metav1.ObjectMeta{Name: secret.Name, Labels: secret.Labels, Annotations: secret.Annotations}
	_, err = spoke.Kubernetes.CoreV1().Secrets(a.hub).Create(t.Context(), secret, metav1.CreateOptions{})
	require.NoError(t, err)
	hub := " --principal-context spoke-b"
	rows := decoded[[]fleetRow](t, a, "agent list"+hub+" --principal-metrics-ca-path "+ca)
	require.Len(t, rows, 1)
	require.Equal(t, "connected", rows[0].Connection.State)
	require.Equal(t, "principal-7", rows[0].Connection.Replica)

	warnings := a.does(t, "agent list"+hub+" --principal-metrics-ca-path "+ca+" --principal-metrics-server-name elsewhere").warnings
	require.Contains(t, warnings, "pod principal of Service "+a.hub+"/argocd-agent-principal-metrics")
	require.Contains(t, warnings, "--principal-metrics-server-name says another name")
	require.NoError(t, os.WriteFile(spoke.PodPortFile, []byte("1"), 0o600))
	require.Contains(t, a.does(t, "agent list"+hub+" --principal-metrics-ca-path "+ca).warnings, "not known which agents are connected")
}
