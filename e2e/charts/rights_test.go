package charts_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/cluster"
)

// The programs run in the end-to-end tests with the rights of e2e/lab/manifests and no others. The charts give the same.
func TestRightsAreThoseOfTheLab(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		chart, shape string
		manifests    []string
		names        map[string]string // of the lab's roles => of the chart's
		more         []string          // sets
	}{
		{spoke, "managed", []string{"agent-rbac.yaml"}, map[string]string{"Role argocd-agent-agent": "argocd-agent-agent", "ClusterRole argocd-agent-agent": "argocd-agent-agent-argocd"}, nil},
		{spoke, "hybrid", []string{"agent-destination-rbac.yaml"}, map[string]string{"ClusterRole argocd-agent-agent-destination": "argocd-agent-agent-destination-argocd"}, nil},
		{
			hub, "standalone", []string{"principal-rbac.yaml", "principal-enrollment-rbac.yaml", "principal-signer-rbac.yaml", "principal-registration-rbac.yaml"},
			map[string]string{
				"Role argocd-agent-principal": "argocd-agent-principal", "ClusterRole argocd-agent-principal": "argocd-agent-principal-argocd",
				"Role argocd-agent-principal-enrollment": "argocd-agent-principal-enrollment", "Role argocd-agent-principal-signer": "argocd-agent-principal-signer",
				"Role argocd-agent-principal-registration": "argocd-agent-principal-registration",
			},
			[]string{"--set=enrollment.enabled=true", `--set-string=params.principal\.enable-self-cluster-registration=true`},
		},
	} {
		t.Run(c.chart+"/"+c.shape, func(t *testing.T) {
			t.Parallel()
			objects := render(t, c.chart, append(c.more, "--values="+folderOf(c.chart, "ci", c.shape+"-values.yaml"))...)
			for name, rules := range rulesOfLab(t, c.manifests) {
				require.Contains(t, c.names, name)
				require.ElementsMatch(t, rules, split(t, rulesOf(t, objects, name, c.names[name])), name)
			}
		})
	}
}

// rulesOfLab are the rules of each role, with one resource each, so that they can be compared however they are written.
func rulesOfLab(t *testing.T, manifests []string) map[string][]any {
	t.Helper()
	all := make(map[string][]any)
	for _, name := range manifests {
		text, err := os.ReadFile(filepath.Join("..", "lab", "manifests", name))
		require.NoError(t, err)
		objects, err := cluster.Parse(text)
		require.NoError(t, err)
		for _, object := range objects {
			if kind := object.GetKind(); kind == "Role" || kind == "ClusterRole" {
				rules, _, err := unstructured.NestedSlice(object.Object, "rules")
				require.NoError(t, err)
				all[kind+" "+object.GetName()] = split(t, rules)
			}
		}
	}
	return all
}

func rulesOf(t *testing.T, objects []*unstructured.Unstructured, like, name string) []any {
	t.Helper()
	for _, object := range objects {
		if object.GetName() == name && object.GetKind() == like[:len(object.GetKind())] && like[len(object.GetKind())] == ' ' {
			rules, found, err := unstructured.NestedSlice(object.Object, "rules")
			require.NoError(t, err)
			require.True(t, found)
			return rules
		}
	}
	require.Fail(t, "there is no such role", name)
	return nil
}

// split makes a rule for each resource.
func split(t *testing.T, rules []any) (all []any) {
	t.Helper()
	for _, rule := range rules {
		rule := rule.(map[string]any)
		resources, found, err := unstructured.NestedStringSlice(rule, "resources")
		require.NoError(t, err)
		if !found {
			all = append(all, rule)
		}
		for _, resource := range resources {
			one := map[string]any{"resources": []any{resource}}
			for key, value := range rule {
				if key != "resources" {
					one[key] = value
				}
			}
			all = append(all, one)
		}
	}
	return all
}
