package e2e_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/pki"
)

// What is there and will not do is an error that says why, and nothing is changed.
func TestAgentctlRefusesToOverwriteWithoutUpsert(t *testing.T) {
	t.Parallel()
	strangers := newCA(t, "strangers", pki.Validity{})
	past := pki.Validity{NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: time.Now().Add(-time.Hour)}
	replacing := func(pair pki.Pair) func(*corev1.Secret) {
		return func(s *corev1.Secret) { s.Data["tls.crt"], s.Data["tls.key"] = pair.Certificate, pair.Key }
	}
	component, principal := "argocd-agent-kubeproxy-tls", "argocd-agent-principal-tls"
	for name, c := range map[string]struct {
		secret  string
		change  func(t *testing.T, a admin) func(*corev1.Secret)
		command string
		why     string
	}{
		"of a stranger": {component, func(t *testing.T, _ admin) func(*corev1.Secret) {
			return replacing(clientPair(t, strangers, "argocd-agent-kubeproxy", pki.Validity{}))
		}, "pki issue component kubeproxy", "it was issued by CN=strangers, which is none of the CAs in Secret"},
		"expired": {component, func(t *testing.T, a admin) func(*corev1.Secret) {
			return replacing(clientPair(t, a.ca(t), "argocd-agent-kubeproxy", past))
		}, "pki issue component kubeproxy", "it expired at "},
		"of another name": {component, func(t *testing.T, a admin) func(*corev1.Secret) {
			return replacing(clientPair(t, a.ca(t), "somebody", pki.Validity{}))
		}, "pki issue component kubeproxy", "its common name is somebody, not argocd-agent-kubeproxy"},
		"of another use": {component, func(t *testing.T, a admin) func(*corev1.Secret) {
			return replacing(serverPair(t, a.ca(t), pki.Validity{}))
		}, "pki issue component kubeproxy", "it is not for clients"},
		"of another key": {principal, func(t *testing.T, a admin) func(*corev1.Secret) {
			other := clientPair(t, a.ca(t), "x", pki.Validity{})
			return func(s *corev1.Secret) { s.Data["tls.key"] = other.Key }
		}, "pki issue principal", "private key does not match public key"},
		"nonsense": {principal, func(*testing.T, admin) func(*corev1.Secret) {
			return func(s *corev1.Secret) { s.Data["tls.crt"] = []byte("nonsense") }
		}, "pki issue principal", "failed to find any PEM data in certificate input"},
		"nothing": {principal, func(*testing.T, admin) func(*corev1.Secret) {
			return func(s *corev1.Secret) { s.Data["tls.key"] = nil }
		}, "pki issue principal", "its key tls.key is missing or empty"},
		"no key of tokens": {"argocd-agent-jwt", func(*testing.T, admin) func(*corev1.Secret) {
			return func(s *corev1.Secret) { s.Data["jwt.key"] = []byte("nonsense") }
		}, "jwt create-key --key-algorithm ed25519", "no key in PEM form"},
		"a CA that is none": {"argocd-agent-ca", func(t *testing.T, a admin) func(*corev1.Secret) {
			return replacing(clientPair(t, a.ca(t), "x", pki.Validity{}))
		}, "pki init", "which is not a CA, and it has no key ca.crt: replace it with --force, and issue all certificates again"},
		"a CA that is expired": {"argocd-agent-ca", func(t *testing.T, _ admin) func(*corev1.Secret) {
			return replacing(newCA(t, "old", past).PEM())
		}, "pki init", "it expired at "},
		"an agent at another place": {"cluster-berlin", func(*testing.T, admin) func(*corev1.Secret) {
			return func(s *corev1.Secret) { s.Data["server"] = []byte("https://elsewhere:9090?agentName=berlin") }
		}, "agent create berlin", "its server is https://elsewhere:9090?agentName=berlin, not https://argocd-agent-resource-proxy:9090?agentName=berlin"},
		"an agent without labels": {"cluster-berlin", func(*testing.T, admin) func(*corev1.Secret) {
			return func(*corev1.Secret) {}
		}, "agent create berlin --label region=eu", "it has no label region=eu"},
		"an agent of the principal's": {"cluster-berlin", func(*testing.T, admin) func(*corev1.Secret) {
			return func(s *corev1.Secret) { s.Labels["argocd-agent.argoproj-labs.io/self-registered-cluster"] = "true" }
		}, "agent create berlin", "it was created by a principal, which manages it"},
		"an agent that is nonsense": {"cluster-berlin", func(*testing.T, admin) func(*corev1.Secret) {
			return func(s *corev1.Secret) { s.Data["config"] = []byte("nonsense") }
		}, "agent create berlin", "its key config is not what Argo CD expects"},
		"an agent that the hub's controller works on": {"cluster-berlin", func(*testing.T, admin) func(*corev1.Secret) {
			return func(s *corev1.Secret) { delete(s.Annotations, "argocd.argoproj.io/skip-reconcile") }
		}, "agent create berlin", "an application controller on the hub would work on this cluster too"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := ready(t)
			a.does(t, "jwt create-key --key-algorithm ed25519")
			a.changes(t, c.secret, c.change(t, a))
			before := a.secret(t, c.secret)
			a.fails(t, c.command, "Secret "+a.hub+"/"+c.secret+" on the hub (context hub): it exists already, and is not as wanted: ", c.why)
			require.Equal(t, before.ResourceVersion, a.secret(t, c.secret).ResourceVersion)
			flag := " --upsert"
			if c.command == "pki init" {
				flag = " --force"
			}
			a.does(t, c.command+flag)
			require.Contains(t, a.does(t, c.command).output, c.secret+" on the hub (context hub): unchanged")
		})
	}
}

// Some things are not overwritten whoever asks: what would be lost is more than what is asked for.
func TestAgentctlNeverOverwritesForeignSecrets(t *testing.T) {
	t.Parallel()
	a := ready(t)
	b := newAdmin(t) // another hub
	b.does(t, "pki init")
	both := "--principal-namespace " + a.hub + " --agent-context hub --agent-namespace " + b.hub
	for _, command := range []string{"pki propagate ", "pki issue agent berlin "} {
		a.fails(t, command+both, "it has a private key, as a CA's own Secret does, which would be lost",
			"Choose it by --agent-context and --agent-namespace")
		a.fails(t, command+both+" --upsert", "it exists already, and is not replaced")
	}
	a.fails(t, "pki propagate --agent-context hub --upsert", "choose another with --agent-context")
	require.NotEmpty(t, b.secret(t, "argocd-agent-ca").Data["tls.key"])

	a.creates(t, "cluster-prod", map[string][]byte{"name": []byte("prod"), "server": []byte("https://prod.example.com")})
	a.fails(t, "agent create prod --upsert", "it is that of another cluster, since its label argocd-agent.argoproj-labs.io/agent-name is not prod",
		"kubectl delete secret cluster-prod -n "+a.hub+" --context hub")
	require.Equal(t, "https://prod.example.com", string(a.secret(t, "cluster-prod").Data["server"]))

	a.creates(t, "hamburg-cluster", map[string][]byte{"name": []byte("hamburg")})
	a.changes(t, "hamburg-cluster", func(s *corev1.Secret) {
		s.Labels = map[string]string{"argocd-agent.argoproj-labs.io/agent-name": "hamburg"}
	})
	a.fails(t, "agent create hamburg --upsert", "Secret "+a.hub+"/hamburg-cluster on the hub (context hub) is about it already")
}

// Replacing an agent's cluster Secret leaves what somebody else has added to it.
func TestAgentCreateUpsertKeepsForeignLabelsAndAnnotations(t *testing.T) {
	t.Parallel()
	a := ready(t)
	a.changes(t, "cluster-berlin", func(s *corev1.Secret) {
		s.Labels["added"], s.Annotations["added"], s.Data["project"] = "label", "annotation", []byte("web")
		s.Labels["argocd-agent.argoproj-labs.io/self-registered-cluster"] = "true"
	})
	a.does(t, "agent create berlin --upsert --resource-proxy-server localhost:19090 --label region=eu")
	got := a.secret(t, "cluster-berlin")
	require.Equal(t, "label", got.Labels["added"])
	require.Equal(t, "eu", got.Labels["region"])
	require.Equal(t, "annotation", got.Annotations["added"])
	require.Equal(t, "web", string(got.Data["project"]))
	require.NotContains(t, got.Labels, "argocd-agent.argoproj-labs.io/self-registered-cluster")
	require.Equal(t, "https://localhost:19090?agentName=berlin", string(got.Data["server"]))
}

// What is missing is named, with what to do about it.
func TestAgentctlNamesMissingPrerequisites(t *testing.T) {
	t.Parallel()
	a := newAdmin(t)
	for _, command := range []string{
		"pki inspect", "pki issue principal", "pki issue component kubeproxy", "agent create berlin",
		"pki issue agent berlin --agent-context spoke-b", "pki propagate --agent-context spoke-b",
	} {
		a.fails(t, command, "error: Secret "+a.hub+"/argocd-agent-ca on the hub (context hub): not found: create it with: argocd-agentctl pki init")
	}
	a.fails(t, "agent inspect berlin", "agent berlin: there is no Secret "+a.hub+"/cluster-berlin on the hub (context hub)",
		"argocd-agentctl agent list", "argocd-agentctl agent create berlin")
	require.Equal(t, 1, strings.Count(a.does(t, "agent list").output, "\n"), "its heading alone")
	require.Equal(t, "[]\n", a.does(t, "agent list -o json").output)
	require.Contains(t, a.does(t, "agent list").warnings, "there is no agent in namespace "+a.hub)
	require.Contains(t, a.does(t, "status").warnings, "there is no agent in namespace "+a.hub)

	a.does(t, "pki init")
	a.fails(t, "agent create berlin --tls-from-secret x --ca-from-secret y", "Secret "+a.hub+"/x on the hub (context hub): not found")
	a.fails(t, "agent create berlin --tls-from-secret argocd-agent-ca --ca-from-secret other/y", "Secret other/y on the hub (context hub): not found")
	a.fails(t, "pki init --principal-namespace nowhere", `namespaces "nowhere" not found: create it with: kubectl create namespace nowhere --context hub`)
	a.fails(t, "pki issue agent berlin --agent-context spoke-b --agent-namespace nowhere", "kubectl create namespace nowhere --context spoke-b")

	a.changes(t, "argocd-agent-ca", func(s *corev1.Secret) { s.Data["tls.key"] = nil })
	a.fails(t, "pki issue principal", "it has no private key (tls.key), as on a spoke, so nothing can be issued with it")
	a.does(t, "pki propagate --agent-context spoke-b")
	require.Contains(t, a.shows(t, "pki inspect"), "private key  missing")
}

// What somebody may not do is said, and who that is.
func TestAgentctlNamesForbiddenRequests(t *testing.T) {
	t.Parallel()
	a := ready(t)
	stranger, err := shared.Hub.KubeconfigFor(lab.AgentUser, shared.Hub.Address, a.hub) // whom only spokes know
	require.NoError(t, err)
	a.fails(t, "agent list --kubeconfig "+stranger, "error: the hub (context hub): list Secrets in namespace "+a.hub+": Unauthorized",
		"log in to that cluster again, or choose another by --principal-context")
	newcomer := " --kubeconfig " + impersonating(t, shared.Hub, "newcomer")
	for command, verb := range map[string]string{"agent list": "list", "agent inspect berlin": "list", "pki inspect": "get", "pki init": "get"} {
		a.fails(t, command+newcomer, `User "newcomer" cannot `+verb+` resource "secrets"`, "ask for that right, or choose a context that has it")
	}
}

func TestPKIInitForceReplacesCA(t *testing.T) {
	t.Parallel()
	a := ready(t)
	before := a.secret(t, "argocd-agent-ca")
	got := a.does(t, "pki init --force")
	require.Contains(t, got.output, "argocd-agent-ca on the hub (context hub): replaced")
	require.Contains(t, got.warnings, "certificates of the older CA are no longer trusted")
	require.NotEqual(t, before.Data, a.secret(t, "argocd-agent-ca").Data)
	for _, command := range []string{"pki issue principal", "agent create berlin"} {
		a.fails(t, command, "it was issued by CN=argocd-agent-ca, which is none of the CAs in")
	}
	a.fails(t, "pki propagate --agent-context spoke-b", "it has CN=argocd-agent-ca (SHA-256 ", ", and the hub has CN=argocd-agent-ca (SHA-256 ")
	berlin := a.inspects(t, "berlin --agent-context spoke-b")
	require.NotEmpty(t, berlin.Problems)
	a.does(t, "pki issue principal -u", "pki issue resource-proxy -u", "agent create berlin -u", "pki issue agent berlin -u --agent-context spoke-b")
	require.Empty(t, a.inspects(t, "berlin --agent-context spoke-b").Problems)
}

// While one CA replaces another, both are trusted.
func TestPKIPropagateCopiesOldAndNewCA(t *testing.T) {
	t.Parallel()
	a := ready(t)
	next := newCA(t, "next", pki.Validity{}).PEM()
	var both []byte
	a.changes(t, "argocd-agent-ca", func(s *corev1.Secret) {
		both = bytes.Join([][]byte{next.Certificate, s.Data["tls.crt"]}, nil)
		s.Data["tls.crt"], s.Data["tls.key"] = both, next.Key
	})
	require.Contains(t, a.does(t, "pki issue principal").output, "unchanged", "the older one's are good")
	a.does(t, "pki issue resource-proxy -u", "agent create berlin -u", "pki issue agent berlin -u --agent-context spoke-b")
	require.Equal(t, both, a.agents(t, "argocd-agent-ca").Data["ca.crt"])
	require.Equal(t, both, a.secret(t, "argocd-agent-resource-proxy-tls").Data["ca.crt"])
	require.Equal(t, "next", pairOf(t, a.agents(t, "argocd-agent-client-tls")).Issuer.CommonName)
	require.Empty(t, a.inspects(t, "berlin --agent-context spoke-b").Problems)
}
