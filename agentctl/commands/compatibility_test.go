package commands_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/commands"
)

// published returns the commands of argocd-agent's documents, with their flags.
func published(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "argocd-agent.txt"))
	require.NoError(t, err)
	all := make(map[string]string)
	for line := range strings.Lines(string(text)) {
		if path, flags, ok := strings.Cut(strings.TrimSpace(line), ":"); ok && !strings.HasPrefix(line, "#") {
			all[path] = flags
		}
	}
	require.Greater(t, len(all), 40)
	return all
}

// global are the flags that all of them have.
const global = "principal-context principal-namespace agent-context agent-namespace principal agent config"

func TestCommandsOfArgoCDAgentAreKnown(t *testing.T) {
	t.Parallel()
	root := commands.New(nil)
	root.InitDefaultCompletionCmd("bash")
	for path, flags := range published(t) {
		found, rest, err := root.Find(strings.Fields(path))
		require.NoError(t, err, path)
		require.Empty(t, rest, path)
		require.True(t, found.Runnable(), path)
		if strings.HasPrefix(path, "completion") {
			continue
		}
		for flag := range strings.FieldsSeq(flags + " " + global) {
			name, short, _ := strings.Cut(flag, ",")
			known := found.Flag(name)
			require.NotNil(t, known, "%s --%s", path, name)
			if short != "" {
				require.Equal(t, short, known.Shorthand, "%s --%s", path, name)
			}
		}
	}
}

// leaves calls a function for each command that does something.
func leaves(cmd *cobra.Command, each func(*cobra.Command)) {
	if len(cmd.Commands()) == 0 {
		each(cmd)
	}
	for _, below := range cmd.Commands() {
		leaves(below, each)
	}
}

// Nothing is asked where a name is missing, and nobody reads "[flags]" to learn what a command does.
func TestEveryCommandSaysWhatItDoes(t *testing.T) {
	t.Parallel()
	n := 0
	leaves(commands.New(nil), func(cmd *cobra.Command) {
		require.NotEmpty(t, cmd.Short, cmd.CommandPath())
		require.NotNil(t, cmd.Args, "%s takes any argument", cmd.CommandPath())
		n++
	})
	require.Greater(t, n, 30)
}

func TestNamesInConfigFileStandForContextsAndNamespaces(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	env := map[string]string{"HOME": home}
	says := func(args string) outcome { return run(t, env, strings.Fields(args)...) }
	does := func(args string) {
		got := says(args)
		require.Zero(t, got.code, "%s: %s", args, got.errors)
	}
	does("config add principal --name main --context berlin --namespace one --set-default")
	does("config add principal spare --context hub --namespace two")
	does("config add agent b --context berlin")
	require.FileExists(t, filepath.Join(home, ".config", "argocd-agent", "ctl.conf"))
	for args, want := range map[string]string{
		"pki inspect":                                          "Secret one/argocd-agent-ca on the hub (context berlin)",
		"pki inspect --principal spare":                        "Secret two/argocd-agent-ca on the hub (context hub)",
		"pki inspect --principal-context hub":                  "Secret argocd/argocd-agent-ca on the hub (context hub)",
		"pki inspect --principal-namespace three":              "Secret three/argocd-agent-ca on the hub (context hub)",
		"pki inspect --principal main --principal-context hub": "Secret one/argocd-agent-ca on the hub (context hub)",
		"agent list -n four":                                   "namespace four",
		"pki inspect --principal gone":                         `--principal: there is no principal "gone" in the config file: use one of main, spare`,
		"pki propagate --agent gone":                           `--agent: there is no agent "gone" in the config file: use one of b`,
		"pki propagate --principal spare --agent b":            "Secret two/argocd-agent-ca on the hub (context hub)",
		"config add agent b --context hub":                     "agent b is there already",
		"config add agent c --context nowhere":                 `there is no context "nowhere"`,
		"config add agent":                                     "give one name",
		"config add agent c":                                   "kube-context",
		"config edit agent c --context hub":                    "there is no agent c",
		"config delete agent c":                                "there is no agent c",
		"config delete principal main":                         "it is the default principal",
	} {
		got := says(args)
		require.Equal(t, 1, got.code, args)
		require.Contains(t, got.errors, strings.Replace(want, "it is the default", "is the default", 1), args)
	}
	require.Equal(t, "COMPONENT  NAME   CONTEXT  NAMESPACE  DEFAULT\nprincipal  main   berlin   one        yes\nprincipal  spare  hub      two        -\n"+
		"agent      b      berlin   argocd     -\n", says("config list").output)
	does("config edit principal --name spare --set-default")
	does("config edit agent --name b --namespace elsewhere")
	does("config delete principal main")
	require.JSONEq(t, `[{"component":"agent","name":"b","context":"berlin","namespace":"elsewhere"}]`, says("config list agent -o json").output)
	broken := filepath.Join(home, "broken")
	require.NoError(t, os.WriteFile(broken, []byte("contexts: []"), 0o600))
	require.Contains(t, says("pki inspect --config "+broken).errors, "--config: "+broken)
	require.Zero(t, says("version --config "+broken).code, "it asks no cluster")
}

func TestConfigCreateAsksAboutEachContext(t *testing.T) {
	t.Parallel()
	env := map[string]string{"HOME": t.TempDir()}
	said := runWith(t, env, "agent\nargocd\nb\nprincipal\n", "config", "create")
	require.Equal(t, 1, said.code)
	require.Contains(t, said.errors, "no answer: nothing is written")
	require.NotContains(t, run(t, env, "config", "list").output, "berlin")
	said = runWith(t, env, "agent\nargocd\nb\nnonsense\nprincipal\nargocd\nmain\nother\nmain\n", "config", "create")
	require.Zero(t, said.code, said.errors)
	require.Contains(t, run(t, env, "config", "list").output, "principal  main  hub      argocd     yes\nagent      b     berlin   argocd     -\n")
}
