package manifest_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/manifest"
)

func berlin() manifest.Spoke {
	return manifest.Spoke{
		Namespace: "argo", Mode: "managed", Server: "hub.example.com", Port: 443, Image: "registry.example.com/agent:v1",
		Secrets: []byte("---\napiVersion: v1\nkind: Secret\nmetadata: {name: argocd-agent-client-tls}\n"),
	}
}

// rulesOf returns the rules of all roles in YAML, by their kinds.
func rulesOf(t *testing.T, text []byte) map[string][]rbacv1.PolicyRule {
	t.Helper()
	rules := make(map[string][]rbacv1.PolicyRule)
	for document := range bytes.SplitSeq(text, []byte("\n---\n")) {
		var role rbacv1.Role
		require.NoError(t, yaml.Unmarshal(document, &role))
		if len(role.Rules) > 0 {
			rules[role.Kind] = role.Rules
		}
	}
	return rules
}

// The end-to-end tests run agents with the lab's rights: an agent that is installed by a manifest has no others.
func TestManifestGivesTheRightsThatAgentsAreTestedWith(t *testing.T) {
	t.Parallel()
	tested, err := os.ReadFile(filepath.Join("..", "..", "e2e", "lab", "manifests", "agent-rbac.yaml"))
	require.NoError(t, err)
	text, err := berlin().YAML()
	require.NoError(t, err)
	want := rulesOf(t, tested)
	require.Len(t, want, 2)
	require.Equal(t, want, rulesOf(t, text))
}

func TestFolderHoldsAllThatTheKustomizationNames(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "berlin")
	require.NoError(t, berlin().WriteFolder(path))
	text, err := os.ReadFile(filepath.Join(path, "kustomization.yaml"))
	require.NoError(t, err)
	var list struct{ Resources []string }
	require.NoError(t, yaml.Unmarshal(text, &list))
	var all []byte
	for _, name := range list.Resources {
		part, err := os.ReadFile(filepath.Join(path, name))
		require.NoError(t, err)
		all = append(all, part...)
	}
	stream, err := berlin().YAML()
	require.NoError(t, err)
	require.Equal(t, string(stream), string(all))

	info, err := os.Stat(filepath.Join(path, "secrets.yaml"))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm(), "others on the machine cannot read the key")
	require.ErrorContains(t, berlin().WriteFolder(path), "is not empty")
}
