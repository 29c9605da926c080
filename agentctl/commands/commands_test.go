package commands_test

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/commands"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/program"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/settings/settingstest"
)

// outcome is what a command has printed, and its exit code.
type outcome struct {
	code           int
	output, errors string
}

// run runs a command with a kubeconfig that has two contexts, whose API servers are not there.
func run(t *testing.T, environment map[string]string, args ...string) outcome {
	t.Helper()
	return runWith(t, environment, "", args...)
}

// runWith is run for a command that reads what a person types.
func runWith(t *testing.T, environment map[string]string, typed string, args ...string) outcome {
	t.Helper()
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(kubeconfig, []byte(`apiVersion: v1
kind: Config
current-context: hub
clusters: [{name: hub, cluster: {server: "http://127.0.0.1:1"}}, {name: berlin, cluster: {server: "http://127.0.0.1:2"}}]
users: [{name: somebody, user: {token: secret}}]
contexts: [{name: hub, context: {cluster: hub, user: somebody}}, {name: berlin, context: {cluster: berlin, user: somebody}}]
`), 0o600))
	var output, errors bytes.Buffer
	cmd := commands.New(settingstest.Environ(environment))
	cmd.SetOut(&output)
	cmd.SetErr(&errors)
	cmd.SetIn(strings.NewReader(typed))
	return outcome{program.Main(t.Context(), cmd, append(args, "--kubeconfig="+kubeconfig)), output.String(), errors.String()}
}

// What cannot be right is said before any cluster is asked: none is there.
func TestInvalidFlagsFailBeforeAnyRequest(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"pki isue":                     "did you mean issue?",
		"agent block":                  "give one of an agent's name, --fingerprint and --spiffe-id",
		"agent block a b":              "give one of an agent's name, --fingerprint and --spiffe-id",
		"agent block a --spiffe-id=b":  "give one of an agent's name, --fingerprint and --spiffe-id",
		"agent block Berlin":           "rename the agent",
		"agent block --fingerprint=ab": "no SHA-256 fingerprint",
		"agent unblock --spiffe-id=ab": "no URI such as spiffe://",
		"frobnicate":                   "no such command; argocd-agentctl --help lists them",
		"pki init now":                 `takes no argument, and "now" is one`,
		"pki issue agent a --dyas 3 --agent-contxt x":                                   "--dyas: did you mean --days? See argocd-agentctl pki issue agent --help\nunknown flag: --agent-contxt: did you mean --agent-context?",
		"pki init --force --dyas=3":                                                     "unknown flag: --dyas: did you mean --days? See argocd-agentctl pki init --help",
		"pki init --days=0":                                                             "--days: 0: want 1 to 36500",
		"pki init --days=99999":                                                         "--days: 99999: want 1 to 36500",
		"pki init --key-algorithm=dsa":                                                  "use one of ecdsa-p256",
		"pki init --key-algorithm=ed25519 --key-size=4096":                              "only rsa keys come in sizes",
		"pki init --principal-context=elsewhere":                                        `--principal-context: there is no context "elsewhere": use one of berlin, hub`,
		"pki init --principal-namespace=Argo":                                           "--principal-namespace or ARGOCD_AGENT_PRINCIPAL_NAMESPACE",
		"pki init --agent-namespace=":                                                   "--agent-namespace or ARGOCD_AGENT_AGENT_NAMESPACE",
		"pki issue principal --dns=https://hub.example.com":                             "no DNS name, without a scheme and without a port",
		"pki issue principal --dns=hub.example.com:8443":                                "no DNS name, without a scheme and without a port",
		"pki issue principal --dns=<principal-dns-name>":                                "no DNS name",
		"pki issue principal --dns=192.0.2.1":                                           "give it by --ip",
		"pki issue resource-proxy --ip=hub.example.com":                                 "give names by --dns",
		"pki issue component":                                                           "give its name: kubeproxy or redisproxy",
		"pki issue component xds":                                                       "use one of kubeproxy, redisproxy",
		"pki issue agent":                                                               "give the agent's name, as in: argocd-agentctl pki issue agent berlin",
		"pki issue agent berlin":                                                        "choose another with --agent-context, or confirm this one with --same-context",
		"pki issue agent berlin --agent-context=hub":                                    "choose another with --agent-context",
		"pki issue agent berlin --agent-context=x":                                      `--agent-context: there is no context "x": use one of berlin, hub`,
		"pki issue agent Berlin --agent-context=berlin":                                 "a lowercase RFC 1123 label",
		"pki issue agent argocd --agent-context=berlin":                                 "the hub's own namespace",
		"pki propagate":                                                                 "choose another with --agent-context",
		"pki propagate --same-context --agent-context=berlin":                           "--same-context and --agent-context berlin: set one",
		"agent create in-cluster":                                                       "the hub's own namespace or cluster",
		"agent create a --server-address h --output-manifest testdata":                  "testdata is not empty: name a new one",
		"agent create a --server-address h --output-manifest commands_test.go":          "commands_test.go: not a directory",
		"agent create a --output-manifest=x":                                            "want the host name of the principal",
		"agent create a --server-address=hub":                                           "--server-address, --enroll and --principal-spiffe-id are for --output-manifest and --output-values",
		"agent create a --output-values x --output-manifest y":                          "--output-manifest and --output-values: set one of them",
		"agent create a --output-values commands_test.go --server-address h":            "commands_test.go is there already: name a new file",
		"agent create a --output-values x":                                              "want the host name of the principal",
		"agent create a --enroll":                                                       "are for --output-manifest",
		"agent create a --principal-spiffe-id spiffe://hub/x":                           "are for --output-manifest",
		"agent create a --root-ca-path x --output-manifest -":                           "--root-ca-path is for --enroll",
		"agent create a --principal-spiffe-id hub --output-manifest -":                  "--principal-spiffe-id: \"hub\": scheme is missing or invalid: want one such as spiffe://",
		"agent create a --enroll --root-ca-path /no/such --output-manifest -":           "--root-ca-path: open /no/such",
		"agent create a --enroll --root-ca-path commands_test.go --output-manifest -":   "--root-ca-path: commands_test.go: trusted CAs: no certificate in PEM form",
		"agent create a --output-manifest - --server-address h --enroll --token-ttl 1s": "--token-ttl: 1s: want 1m to 720h",
		"agent create":                                                 "give the agent's name",
		"agent create a b":                                             `"b" is one too many`,
		"agent create a.b":                                             "must not contain dots: rename the agent",
		"agent create argocd-agent-redisproxy":                         "a component of the hub has that name",
		"agent create a --resource-proxy-server=proxy":                 "want a host and a port, such as argocd-agent-resource-proxy:9090",
		"agent create a --resource-proxy-server=https://p:90":          "want a host and a port",
		"agent create a --label=region":                                "--label: want key=value: invalid selector: [region]",
		"agent create a --label=region=a/b":                            "--label",
		"agent create a -l argocd-agent.argoproj-labs.io/agent-name=b": "this label is reserved",
		"agent create a --no-client-cert --tls-from-secret=x":          "--no-client-cert and --tls-from-secret: set one",
		"agent create a --tls-from-secret=x":                           "--tls-from-secret and --ca-from-secret: set both or neither",
		"agent create a --tls-from-secret=x/y/z --ca-from-secret=x":    "--tls-from-secret: \"x/y/z\": want the name of a Secret",
		"agent create a --tls-from-secret=x --ca-from-secret=/x":       "--ca-from-secret: \"/x\": want the name of a Secret",
		"agent create a -n one --principal-namespace two":              "both mean the same: set one",
		"pki issue agent a -o json":                                    "want one of yaml",
		"agent list --output=xml":                                      "want one of text, json, yaml",
		"agent list --selector=a==b==c":                                "--selector",
		"agent inspect A":                                              "a lowercase RFC 1123 label",
		"doctor --agent-context berlin":                                "give the agent's name",
		"doctor a --side=moon":                                         "--side: \"moon\"",
		"doctor a --side=spoke":                                        "give the agent's cluster by --agent-context or --agent",
		"doctor a --principal-address=hub":                             "--principal-address: \"hub\": want a host and a port",
		"verify --wait=1ms":                                            "--wait",
		"verify --label-selector=a==b==c":                              "--label-selector",
		"agent reconfigure a":                                          "nothing to change",
		"agent reconfigure a --resource-proxy-server=x":                "want a host and a port",
		"agent print-tls a --type=all":                                 "want one of ca, cert, key",
		"pki dump":                                                     "give --cert, --key or --all",
		"blocklist tls add":                                            "give one fingerprint",
		"blocklist tls remove xyz":                                     "no SHA-256 fingerprint",
		"jwt issue":                                                    "give the agent's name",
		"jwt issue Berlin":                                             "a lowercase RFC 1123 label",
		"jwt issue berlin --duration=0s":                               "want how long the token is good, such as 8h",
		"jwt issue berlin --duration=8761h":                            "8760h0m0s at most",
		"jwt issue berlin --duration=forever":                          "--duration",
		"jwt create-key --key-size=1024":                               "use 2048 to 8192",
		"jwt create-key --key-algorithm=ed25519 --key-size=2048":       "only rsa keys come in sizes",
	} {
		got := run(t, nil, strings.Fields(args)...)
		require.Equal(t, 1, got.code, args)
		require.Empty(t, got.output, args)
		require.True(t, strings.HasPrefix(got.errors, "error: "), "%s: %s", args, got.errors)
		require.Contains(t, got.errors, want, args)
		require.NotContains(t, got.errors, "127.0.0.1", args)
	}
}

// A cluster that cannot be reached is named as people know it, and nobody waits for it.
func TestUnreachableClusterErrorNamesContext(t *testing.T) {
	t.Parallel()
	for _, args := range []string{
		"pki init", "pki inspect", "pki issue principal", "pki issue agent a --agent-context=berlin", "pki propagate --same-context",
		"agent create a", "agent create a --tls-from-secret=x --ca-from-secret=x", "agent list", "agent inspect a", "jwt create-key", "jwt issue a",
		"agent delete a", "agent reconfigure a --reissue-client-cert", "agent print-tls a", "pki dump --cert", "pki delete", "jwt inspect-key", "jwt delete-key",
		"blocklist tls list",
	} {
		got := run(t, nil, strings.Fields(args)...)
		require.Equal(t, 1, got.code, args)
		require.Contains(t, got.errors, "the hub (context hub)", args)
		require.Contains(t, got.errors, "the API server at http://127.0.0.1:1 cannot be asked", args)
		require.Contains(t, got.errors, "connection refused: is this the right cluster? --principal-context chooses another", args)
	}
}

func TestEnvironmentVariablesSetFlags(t *testing.T) {
	t.Parallel()
	got := run(t, map[string]string{"ARGOCD_AGENT_PRINCIPAL_CONTEXT": "berlin", "ARGOCD_AGENT_PRINCIPAL_NAMESPACE": "other"}, "pki", "inspect")
	require.Contains(t, got.errors, "Secret other/argocd-agent-ca on the hub (context berlin)")
	got = run(t, map[string]string{"ARGOCD_AGENT_PRINCIPAL_CONTEXT": "berlin"}, "pki", "inspect", "--principal-context=hub")
	require.Contains(t, got.errors, "Secret argocd/argocd-agent-ca on the hub (context hub)")
	got = run(t, map[string]string{"ARGOCD_AGENT_PRINCIPAL_NAMESPACE": "other"}, "agent", "create", "a", "--namespace", "third")
	require.Contains(t, got.errors, "Secret third/argocd-agent-ca")
	got = run(t, map[string]string{"ARGOCD_AGENT_AGENT_NAMESPACE": "Other"}, "pki", "inspect")
	require.Contains(t, got.errors, `ARGOCD_AGENT_AGENT_NAMESPACE: "Other"`)
	got = run(t, map[string]string{"ARGOCD_AGENT_AGENT_CONTEXT": "nowhere"}, "pki", "propagate")
	require.Contains(t, got.errors, `there is no context "nowhere"`)
}

func TestVersion(t *testing.T) {
	t.Parallel()
	require.Equal(t, 0, run(t, nil, "version").code)
	require.Contains(t, run(t, nil, "version").output, "argocd-agentctl dev")
	require.Contains(t, run(t, nil, "--version").output, "argocd-agentctl dev")
	require.Contains(t, run(t, nil, "pki").output, "propagate", "a group lists what is below it")
}

// exists says that there is a command, with all flags that are given.
func exists(t *testing.T, where, command string) {
	t.Helper()
	words := strings.Fields(command)
	got := run(t, nil, append(words, "--help")...)
	require.Zero(t, got.code, "%s: argocd-agentctl %s: %s", where, command, got.errors)
	if command == "config list" {
		return // it does something by itself, too
	}
	require.NotContains(t, got.output, "Available Commands:", "%s: argocd-agentctl %s: it is a group of commands", where, command)
}

// Whatever the programs tell people to type is there.
func TestCommandsInMessagesExist(t *testing.T) {
	t.Parallel()
	message := regexp.MustCompile(`with: argocd-agentctl ((?:[a-z-]+ ?)+)`)
	found := 0
	require.NoError(t, filepath.WalkDir("../..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, match := range message.FindAllStringSubmatch(string(text), -1) {
			exists(t, path, match[1])
			found++
		}
		return err
	}))
	require.Greater(t, found, 10)
}

// So is what the documents show, and what people know from those of argocd-agent.
func TestCommandsInDocumentsExist(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/agentctl.md")
	require.NoError(t, err)
	lines := regexp.MustCompile(`(?m)^(?:\$ )?argocd-agentctl ([^|\n]+)`).FindAllStringSubmatch(string(text), -1)
	require.Greater(t, len(lines), 10)
	for _, line := range lines {
		exists(t, "docs/agentctl.md", line[1])
	}
	for _, command := range []string{
		"pki init --principal-context hub --principal-namespace argocd",
		"pki init --force --days 3650",
		"pki issue principal --principal-context hub --principal-namespace argocd --ip 127.0.0.1,192.0.2.1 --dns localhost,hub.example.com --upsert",
		"pki issue resource-proxy --principal-context hub --ip 127.0.0.1 --dns localhost --upsert --days 90",
		"pki issue agent berlin --principal-context hub --agent-context berlin --agent-namespace argocd -u",
		"pki propagate --principal-context hub --principal-namespace argocd --agent-context berlin --agent-namespace argocd",
		"pki propagate --principal-context hub --agent-context berlin -f",
		"pki inspect --principal-context hub",
		"jwt create-key --principal-context hub --principal-namespace argocd --upsert",
		"jwt create-key --force",
		"agent create agent-spoke-1 --namespace argocd",
		"agent create berlin --resource-proxy-server 192.0.2.1:9090 --resource-proxy-username berlin --resource-proxy-password x",
		"agent create berlin --tls-from-secret a --ca-from-secret b -l a=b --days 180 --key-algorithm rsa --key-size 4096",
		"agent list --principal-context hub",
		"agent inspect berlin",
	} {
		exists(t, "argocd-agent", command)
	}
}
