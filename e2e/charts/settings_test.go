package charts_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

// parameter is a setting of a program: its variable, and its key in argocd-agent-params.
type parameter struct {
	Variable string `json:"variable"`
	Key      string `json:"key"`
}

// Every setting of a program can be given by the charts: but for passwords and tokens, which come from Secrets, and what Kubernetes says.
func TestEverySettingHasAKey(t *testing.T) {
	t.Parallel()
	byProgram := make(map[string][]parameter)
	read(t, folderOf(hub, "files", "parameters.yaml"), &byProgram)
	var ofAgent []parameter
	read(t, folderOf(spoke, "files", "parameters.yaml"), &ofAgent)
	byProgram["agent"] = ofAgent
	elsewhere := []string{"REDIS_PASSWORD", "ARGOCD_AGENT_ENROLLMENT_TOKEN", "POD_NAME"}
	for _, program := range []string{"principal", "agent", "kubeproxy", "redisproxy", "xds"} {
		help, err := os.ReadFile(filepath.Join("..", "..", program, "testdata", "help.txt"))
		require.NoError(t, err)
		var want, have []string
		for _, found := range regexp.MustCompile(`(?m)^ +(?:-\w, )?--.*\[([A-Z][A-Z0-9_]+)\]`).FindAllStringSubmatch(string(help), -1) {
			if !slices.Contains(elsewhere, found[1]) {
				want = append(want, found[1])
			}
		}
		for _, p := range byProgram[program] {
			have = append(have, p.Variable)
		}
		require.ElementsMatch(t, want, have, "the settings of %s", program)
	}
}

// argocd-agentctl writes the agent's Deployment too: by the same keys.
func TestKeysAreThoseOfArgocdAgentctl(t *testing.T) {
	t.Parallel()
	var ofAgent []parameter
	read(t, folderOf(spoke, "files", "parameters.yaml"), &ofAgent)
	source, err := os.ReadFile(filepath.Join("..", "..", "agentctl", "manifest", "deployment.go"))
	require.NoError(t, err)
	found := regexp.MustCompile(`\{"([A-Z_]+)", "(agent\.[a-z.-]+)"\}`).FindAllStringSubmatch(string(source), -1)
	require.NotEmpty(t, found)
	for _, one := range found {
		require.Contains(t, ofAgent, parameter{one[1], one[2]})
	}
}

// What alerts and the dashboard ask for is what the programs have.
func TestMetricsOfAlertsAndDashboardExist(t *testing.T) {
	t.Parallel()
	documented, err := os.ReadFile(filepath.Join("..", "..", "docs", "operations.md"))
	require.NoError(t, err)
	texts := make(map[string]string)
	for _, file := range []string{folderOf(hub, "files", "dashboard.json"), folderOf(hub, "templates", "prometheusrule.yaml"), folderOf(spoke, "templates", "prometheusrule.yaml")} {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		texts[file] = string(text)
	}
	for file, text := range texts {
		names := regexp.MustCompile(`argocd_[a-z_]+`).FindAllString(text, -1)
		require.NotEmpty(t, names, file)
		for _, name := range names {
			// The agent has those of the principal's about synchronisation, as the page says.
			asked := strings.Replace(strings.TrimSuffix(name, "_bucket"), "argocd_agent_sync_", "argocd_principal_sync_", 1)
			require.Contains(t, string(documented), asked, "%s: docs/operations.md has no such metric", file)
		}
	}
}

func read(t *testing.T, file string, into any) {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NoError(t, yaml.UnmarshalStrict(text, into), file)
}
