package e2e_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"maps"
	"os/exec"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/commands"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/pki"
)

// A set-up script for argocd-agent, with its short forms and other names, runs to its end.
func TestScriptForArgoCDAgentRuns(t *testing.T) {
	t.Parallel()
	a := newAdmin(t)
	require.NoError(t, shared.Hub.Apply(t.Context(), namespace("berlin")))
	a.does(t, "pki init -f", "pki new-cert principal --ip 127.0.0.1 --dns localhost -u", "pki issue resource-proxy --no-san -u",
		"jwt create-key -u --key-size 2048", "agent create berlin -l region=eu --resource-proxy-server argocd-agent-resource-proxy:9090",
		"pki issue agent berlin --agent-context spoke-b -u", "pki propagate --agent-context spoke-b -f", "check-config principal",
		"check-config agent --agent-context spoke-b", "agent list --label region=eu", "version -i")
	inspected := decoded[agentReport](t, a, "agent show berlin")
	fingerprint := strings.ToUpper(inspected.Certificate.SHA256)
	a.does(t, "blocklist tls add "+fingerprint)
	require.Contains(t, a.does(t, "blocklist tls list").output, inspected.Certificate.SHA256+"  the certificate with the fingerprint")
	a.does(t, "blocklist tls remove "+fingerprint)
	require.Equal(t, "nobody is blocked\n", a.does(t, "blocklist tls list").output)
	a.fails(t, "blocklist tls remove "+fingerprint, "it is not blocked")

	require.Contains(t, a.does(t, "agent reconfigure berlin --resource-proxy-server argocd-agent-resource-proxy:9090").output, "unchanged")
	require.Contains(t, a.does(t, "agent reconfigure berlin --resource-proxy-server localhost:19090 --reissue-client-cert --resource-proxy-username x").output, "replaced")
	changed := a.inspects(t, "berlin")
	require.Equal(t, "https://localhost:19090?agentName=berlin", changed.Server)
	require.Equal(t, map[string]string{"region": "eu"}, changed.Labels)
	require.NotEqual(t, inspected.Certificate.SHA256, changed.Certificate.SHA256)
	a.fails(t, "agent reconfigure paris --reissue-client-cert", "there is no Secret "+a.hub+"/cluster-paris")

	key := decoded[struct {
		KeyType   string
		KeyLength int
		SHA256    string
	}](t, a, "jwt inspect-key")
	require.Equal(t, "RSA", key.KeyType)
	require.Equal(t, 2048, key.KeyLength)
	require.Len(t, key.SHA256, 64)
	for _, command := range []string{"agent delete berlin", "jwt delete-key", "pki delete"} {
		a.fails(t, command, "not confirmed, and nothing was done")
		require.Contains(t, a.does(t, command+" -f").output, ": deleted: ")
		a.fails(t, command+" --force")
	}
}

// What is printed on demand is what the Secrets have.
func TestPrintTLSAndDumpPrintWhatIsAskedFor(t *testing.T) {
	t.Parallel()
	a := ready(t)
	prints := func(command string) []byte {
		cmd := exec.CommandContext(t.Context(), shared.AgentctlPath(), strings.Fields(command)...)
		cmd.Env = a.environment
		out, err := cmd.Output()
		require.NoError(t, err, command)
		return out
	}
	var config struct {
		TLS struct{ CertData, KeyData, CAData []byte } `json:"tlsClientConfig"`
	}
	require.NoError(t, json.Unmarshal(a.secret(t, "cluster-berlin").Data["config"], &config))
	require.Equal(t, config.TLS.CertData, prints("agent print-tls berlin"))
	require.Equal(t, config.TLS.KeyData, prints("agent dump-tls berlin -t key"))
	require.Equal(t, config.TLS.CAData, prints("agent print-tls berlin --type ca"))
	pair := a.secret(t, "argocd-agent-ca").Data
	require.Equal(t, pair["tls.crt"], prints("pki dump --cert"))
	require.Equal(t, pair["tls.key"], prints("pki dump --key"))
	require.Equal(t, bytes.Join([][]byte{pair["tls.crt"], pair["tls.key"]}, nil), prints("pki dump --all"))
}

// asked are arguments with which each command has something to show, by its path. Those that print a key on demand, and those that
// write to no cluster, have none.
//
//nolint:gochecknoglobals // it is a table
var asked = map[string]string{
	"agent create": "paris", "agent list": "", "agent inspect": "berlin --agent-context spoke-b", "agent reconfigure": "berlin --reissue-client-cert",
	"agent delete": "paris -f", "agent block": "berlin", "agent unblock": "berlin", "guard list": "", "guard release": "berlin",
	"blocklist tls add": strings.Repeat("ab", 32), "blocklist tls remove": strings.Repeat("ab", 32), "blocklist tls list": "",
	"pki init": "", "pki inspect": "--full", "pki issue principal": "-u", "pki issue resource-proxy": "-u", "pki issue redis-proxy": "-u", "pki issue xds": "-u",
	"pki issue component": "kubeproxy -u", "pki issue agent": "berlin -u --agent-context spoke-b", "pki propagate": "--agent-context spoke-b -f",
	"pki delete": "", "jwt create-key": "-u --key-algorithm ecdsa-p256", "jwt inspect-key": "", "jwt delete-key": "",
	"redis generate-certs": "-u", "redis configure-tls": "", "redis configure-argocd": "", "ha status": "", "ha promote": "", "ha demote": "",
	"status": "", "doctor": "berlin --agent-context spoke-b", "verify": "berlin --agent-context spoke-b --wait 10s", "validate principal": "", "validate agent": "--agent-context spoke-b", "version": "",
	"agent print-tls": "-", "pki dump": "-", "jwt issue": "-", "agent token create": "-",
	"config create": "-", "config add principal": "-", "config add agent": "-", "config edit principal": "-", "config edit agent": "-",
	"config delete principal": "-", "config delete agent": "-", "config list principal": "-", "config list agent": "-",
}

// No command shows a private key or a token that it was not asked for, in any format.
func TestNoCommandShowsKeysUnasked(t *testing.T) {
	t.Parallel()
	a := ready(t)
	a.does(t, "jwt create-key --key-algorithm ecdsa-p256")
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		for _, below := range cmd.Commands() {
			walk(below)
		}
		if len(cmd.Commands()) > 0 {
			return
		}
		path := strings.TrimPrefix(cmd.CommandPath(), commands.Name+" ")
		arguments, known := asked[path]
		require.True(t, known, "%s: say with which arguments it shows something", path)
		if arguments == "-" {
			return
		}
		formats := []string{""}
		if flag := cmd.Flag("output"); flag != nil && flag.Value.Type() == "format" {
			formats = []string{"", " -o wide", " -o json", " -o yaml"}
		}
		for _, format := range formats {
			a.hides(t, path+" "+arguments+format)
		}
	}
	walk(commands.New(nil))
}

// hides runs a command, and looks in what it says for whatever is secret in the admin's namespaces.
func (a admin) hides(t *testing.T, command string) {
	t.Helper()
	before := a.secrets(t)
	got, _ := a.try(t, command) // what it says matters here, not whether it works
	text := got.output + got.warnings
	maps.Copy(before, a.secrets(t))
	for where, secret := range before {
		require.NotContains(t, text, secret, "%s shows %s", command, where)
		require.NotContains(t, text, base64.StdEncoding.EncodeToString([]byte(secret)), "%s shows %s", command, where)
	}
}

// secrets returns what nobody may see of the Secrets: private keys, without what encloses them.
func (a admin) secrets(t *testing.T) map[string]string {
	t.Helper()
	found := make(map[string]string)
	onHub, err := shared.Hub.Kubernetes.CoreV1().Secrets(a.hub).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	onSpoke, err := shared.Spoke("b").Kubernetes.CoreV1().Secrets(a.spoke).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	for _, s := range append(onHub.Items, onSpoke.Items...) {
		for key, value := range s.Data {
			text := string(value)
			var config struct {
				TLS struct{ KeyData []byte } `json:"tlsClientConfig"`
			}
			if json.Unmarshal(value, &config) == nil && len(config.TLS.KeyData) > 0 {
				text = string(config.TLS.KeyData)
			}
			if _, after, ok := strings.Cut(text, "PRIVATE KEY-----\n"); ok {
				line, _, _ := strings.Cut(after, "\n")
				found[s.Namespace+"/"+s.Name+" "+key+" "+s.ResourceVersion] = line
			}
		}
	}
	return found
}

func TestValidateFindsWhatIsWrong(t *testing.T) {
	t.Parallel()
	a := ready(t)
	type check struct {
		Check, Result, Detail string
		Problems              []string
	}
	validate := func(command string) map[string]check {
		found := make(map[string]check)
		for _, c := range decoded[[]check](t, a, "validate "+command) {
			found[c.Check] = c
		}
		return found
	}
	text := a.does(t, "validate agent --agent-context spoke-b").output
	require.NotContains(t, text, "failed")
	require.NotContains(t, text, "\x1b", "colours are for terminals")
	require.Contains(t, text, "ok       agent berlin on the hub")
	jwt := "JWT signing key (" + a.hub + "/argocd-agent-jwt)"
	require.Equal(t, "skipped", validate("principal")[jwt].Result, "no agent has a token")
	_, err := shared.Hub.Kubernetes.CoreV1().ConfigMaps(a.hub).Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "argocd-cmd-params-cm"}, Data: map[string]string{"application.namespaces": "tokyo,os*"},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	require.Contains(t, validate("principal")["install scope of Argo CD"].Problems[0], "application.namespaces does not have berlin")

	a.creates(t, "argocd-agent-jwt", map[string][]byte{"jwt.key": []byte("nonsense")})
	a.changes(t, "cluster-berlin", func(s *corev1.Secret) {
		delete(s.Annotations, "argocd.argoproj.io/skip-reconcile")
		s.Data["server"] = []byte("https://argocd-agent-resource-proxy:9090")
	})
	strange := clientPair(t, newCA(t, "strangers", pki.Validity{}), "berlin", pki.Validity{})
	own := a.agents(t, "argocd-agent-client-tls")
	own.Data["tls.crt"], own.Data["tls.key"] = strange.Certificate, strange.Key
	_, err = shared.Spoke("b").Kubernetes.CoreV1().Secrets(a.spoke).Update(t.Context(), own, metav1.UpdateOptions{})
	require.NoError(t, err)
	found := validate("agent --agent-context spoke-b")
	for name, want := range map[string]string{
		jwt: "no key in PEM form",
		"agent berlin (" + a.hub + "/cluster-berlin)":                           "it has no annotation argocd.argoproj.io/skip-reconcile=true",
		"certificate of agent berlin (" + a.spoke + "/argocd-agent-client-tls)": "it was issued by CN=strangers",
	} {
		require.Equal(t, "failed", found[name].Result, name)
		require.Contains(t, strings.Join(found[name].Problems, "\n"), want, name)
	}
	require.Contains(t, strings.Join(found["agent berlin ("+a.hub+"/cluster-berlin)"].Problems, "\n"), "Argo CD tells clusters apart by it")
	a.fails(t, "validate agent --agent-context spoke-b", "hub and agent: problems found: ")
}
