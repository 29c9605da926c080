package e2e_test

import (
	"bytes"
	"context"
	"encoding/json"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/pki"
)

// admin is somebody who sets up a hub and an agent on spoke b by argocd-agentctl, in namespaces of the test's own.
type admin struct {
	hub, spoke  string // namespaces
	environment []string
}

func newAdmin(t *testing.T) admin {
	t.Helper()
	name := unique("admin")
	a := admin{hub: name, spoke: name, environment: []string{
		"KUBECONFIG=" + shared.Kubeconfigs(), "ARGOCD_AGENT_PRINCIPAL_NAMESPACE=" + name, "ARGOCD_AGENT_AGENT_NAMESPACE=" + name,
		"ARGOCD_AGENT_CA_NAMESPACE=" + name, // all in one place, but for tests that say otherwise
	}}
	require.NoError(t, shared.Hub.Apply(t.Context(), namespace(name)))
	require.NoError(t, shared.Spoke("b").Apply(t.Context(), namespace(name)))
	return a
}

// said is what a command has said.
type said struct {
	output, warnings string
}

// try runs a command. Whatever becomes of it, it shows no private key.
func (a admin) try(t *testing.T, command string) (said, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, shared.AgentctlPath(), strings.Fields(command)...)
	cmd.Env = a.environment
	var output, warnings bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &warnings
	err := cmd.Run()
	for _, secret := range []string{"PRIVATE KEY", "LS0tLS1CRUdJTi"} {
		require.NotContains(t, output.String()+warnings.String(), secret)
	}
	return said{output.String(), warnings.String()}, err
}

// does runs commands that must work, and returns what the last one said.
func (a admin) does(t *testing.T, commands ...string) (last said) {
	t.Helper()
	for _, command := range commands {
		var err error
		last, err = a.try(t, command)
		require.NoError(t, err, "argocd-agentctl %s\n%s%s", command, last.output, last.warnings)
	}
	return last
}

// fails runs a command that must not work, and say why.
func (a admin) fails(t *testing.T, command string, why ...string) {
	t.Helper()
	got, err := a.try(t, command)
	require.Error(t, err, "argocd-agentctl %s\n%s", command, got.output)
	for _, text := range why {
		require.Contains(t, got.warnings, text, command)
	}
}

// decoded runs a command that prints JSON, and reads that.
func decoded[T any](t *testing.T, a admin, command string) T {
	t.Helper()
	var into T
	require.NoError(t, json.Unmarshal([]byte(a.shows(t, command+" -o json")), &into))
	return into
}

// shows runs a command that shows something, and fails if that has problems.
func (a admin) shows(t *testing.T, command string) string {
	t.Helper()
	got, err := a.try(t, command)
	if err != nil {
		require.Contains(t, got.warnings, "problems found: ", "argocd-agentctl %s\n%s", command, got.output)
	}
	return got.output
}

// agentReport is what argocd-agentctl prints of an agent, for programs.
type agentReport struct {
	Name, Server string
	Labels       map[string]string
	Certificate  certificateReport
	Token        struct {
		Agent    string
		NotAfter time.Time
	}
	Spoke struct {
		Certificate certificateReport
		CAs         []certificateReport
	}
	Connection struct {
		State string
		Since time.Time
	}
	Problems []string
}

type certificateReport struct {
	Subject, Issuer, Key, SHA256 string
	NotAfter                     time.Time
}

// pkiReport is what it prints of the CA and the hub's certificates.
type pkiReport struct {
	Secret       string
	PrivateKey   bool
	Problems     []string
	Certificates []struct {
		Secret   string
		Problems []string
	}
}

// ready is an admin with a hub that is set up, and the agent berlin.
func ready(t *testing.T) admin {
	t.Helper()
	a := newAdmin(t)
	require.NoError(t, shared.Hub.Apply(t.Context(), namespace("berlin")))
	a.does(t, "pki init", "pki issue principal", "pki issue resource-proxy", "agent create berlin",
		"pki issue agent berlin --agent-context spoke-b")
	return a
}

// secret returns a Secret on the hub.
func (a admin) secret(t *testing.T, name string) *corev1.Secret {
	t.Helper()
	return secretOf(t, shared.Hub, a.hub, name)
}

// agents returns a Secret on the agent's cluster.
func (a admin) agents(t *testing.T, name string) *corev1.Secret {
	t.Helper()
	return secretOf(t, shared.Spoke("b"), a.spoke, name)
}

func secretOf(t *testing.T, c *lab.Cluster, namespace, name string) *corev1.Secret {
	t.Helper()
	found, err := c.Kubernetes.CoreV1().Secrets(namespace).Get(t.Context(), name, metav1.GetOptions{})
	require.NoError(t, err)
	return found
}

// changes changes a Secret on the hub behind argocd-agentctl's back.
func (a admin) changes(t *testing.T, name string, change func(*corev1.Secret)) {
	t.Helper()
	found := a.secret(t, name)
	change(found)
	_, err := shared.Hub.Kubernetes.CoreV1().Secrets(a.hub).Update(t.Context(), found, metav1.UpdateOptions{})
	require.NoError(t, err)
}

// creates creates a Secret on the hub.
func (a admin) creates(t *testing.T, name string, data map[string][]byte) {
	t.Helper()
	_, err := shared.Hub.Kubernetes.CoreV1().Secrets(a.hub).Create(t.Context(),
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: data}, metav1.CreateOptions{})
	require.NoError(t, err)
}

// ca returns the CA that argocd-agentctl has made.
func (a admin) ca(t *testing.T) *pki.CA {
	t.Helper()
	data := a.secret(t, "argocd-agent-ca").Data
	loaded, err := pki.LoadCA(data["tls.crt"], data["tls.key"])
	require.NoError(t, err)
	return loaded
}
