package charts_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// eachShape runs a test for every shape of every chart.
func eachShape(t *testing.T, test func(t *testing.T, chart, values string)) {
	t.Helper()
	for _, chart := range charts() {
		for name, values := range shapesOf(t, chart) {
			t.Run(chart+"/"+name, func(t *testing.T) {
				t.Parallel()
				test(t, chart, values)
			})
		}
	}
}

// What the charts make is reviewed as what it is. The variables of settings are left out of it: TestEverySettingHasAKey has them.
func TestCharts(t *testing.T) {
	t.Parallel()
	eachShape(t, func(t *testing.T, chart, values string) {
		t.Helper()
		var text strings.Builder
		for _, object := range render(t, chart, "--values="+values) {
			leaveSettingsOut(object)
			one, err := yaml.Marshal(object.Object)
			require.NoError(t, err)
			text.WriteString("---\n" + string(one))
		}
		compare(t, filepath.Join("testdata", chart, strings.TrimSuffix(filepath.Base(values), "-values.yaml")+".yaml"), text.String())
	})
}

// leaveSettingsOut takes the variables away that are keys of argocd-agent-params, and what follows from them.
func leaveSettingsOut(object *unstructured.Unstructured) {
	unstructured.RemoveNestedField(object.Object, "spec", "template", "metadata", "annotations", "checksum/params")
	for _, container := range containersOf(object) {
		env, _ := container["env"].([]any)
		container["env"] = slices.DeleteFunc(env, func(one any) bool {
			from, _, _ := unstructured.NestedString(one.(map[string]any), "valueFrom", "configMapKeyRef", "name")
			return from == "argocd-agent-params"
		})
	}
	if containers := containersOf(object); len(containers) > 0 && object.GetKind() == "Deployment" {
		_ = unstructured.SetNestedSlice(object.Object, anys(containers), "spec", "template", "spec", "containers") // the field is there
	}
}

func anys(all []map[string]any) []any {
	made := make([]any, len(all))
	for i, one := range all {
		made[i] = one
	}
	return made
}

// containersOf are those of a Deployment, a Job or a Pod, initContainers too.
func containersOf(object *unstructured.Unstructured) (all []map[string]any) {
	for _, at := range [][]string{{"spec", "template", "spec"}, {"spec"}} {
		for _, kind := range []string{"initContainers", "containers"} {
			containers, _, _ := unstructured.NestedSlice(object.Object, append(slices.Clone(at), kind)...)
			for _, container := range containers {
				all = append(all, container.(map[string]any))
			}
		}
	}
	return all
}

// compare compares a text with a file, or writes it with -update.
func compare(t *testing.T, file, text string) {
	t.Helper()
	if *update {
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
		require.NoError(t, os.WriteFile(file, []byte(text), 0o644))
		return
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err, "go test ./charts -update writes it")
	require.Equal(t, string(want), text, "go test ./charts -update writes %s", file)
}

func TestChartsAreLinted(t *testing.T) {
	t.Parallel()
	eachShape(t, func(t *testing.T, chart, values string) {
		t.Helper()
		output, problem := helm(t, "", "lint", "--strict", "--values="+values, folderOf(chart))
		require.Empty(t, problem, output)
	})
}

// A template makes one object, in the release's namespace, with the labels that Helm's best practices name.
func TestTemplatesMakeOneObject(t *testing.T) {
	t.Parallel()
	eachShape(t, func(t *testing.T, chart, values string) {
		t.Helper()
		text, problem := template(t, chart, "--values="+values)
		require.Empty(t, problem)
		sources := regexp.MustCompile(`(?m)^# Source: (.*)$`).FindAllString(text, -1)
		slices.Sort(sources)
		require.Equal(t, sources, slices.Compact(slices.Clone(sources)))
		for _, object := range render(t, chart, "--values="+values) {
			name := object.GetKind() + " " + object.GetName()
			assert.Equal(t, "test", object.GetLabels()["app.kubernetes.io/instance"], name)
			assert.NotEmpty(t, object.GetLabels()["app.kubernetes.io/name"], name)
		}
	})
}

// Every container asks for what it needs, and may no more than the level "restricted" of Pod Security.
func TestContainersAreRestricted(t *testing.T) {
	t.Parallel()
	eachShape(t, func(t *testing.T, chart, values string) {
		t.Helper()
		for _, object := range render(t, chart, "--values="+values) {
			for _, container := range containersOf(object) {
				name := object.GetName() + " " + container["name"].(string)
				context, _ := container["securityContext"].(map[string]any)
				assert.Equal(t, true, context["readOnlyRootFilesystem"], name)
				requests, _, err := unstructured.NestedMap(container, "resources", "requests")
				require.NoError(t, err)
				assert.Contains(t, requests, "memory", name)
			}
		}
	})
}

// Argo CD's Redis has other Pods with high availability, and may have another port.
func TestPolicyOfAnotherRedis(t *testing.T) {
	t.Parallel()
	for _, chart := range charts() {
		t.Run(chart, func(t *testing.T) {
			t.Parallel()
			objects := render(t, chart, "--set=server.address=hub.example.com,redis.address=argocd-redis-ha-haproxy:6380",
				`--set=redis.podLabels.app\.kubernetes\.io/name=argocd-redis-ha-haproxy`)
			at := slices.IndexFunc(objects, func(object *unstructured.Unstructured) bool {
				return strings.HasPrefix(object.GetName(), "argocd-agent-redis-from-")
			})
			require.GreaterOrEqual(t, at, 0)
			text, err := yaml.Marshal(objects[at].Object["spec"])
			require.NoError(t, err)
			require.Contains(t, string(text), "podSelector:\n  matchLabels:\n    app.kubernetes.io/name: argocd-redis-ha-haproxy\n")
			require.Contains(t, string(text), "ports:\n  - port: 6380\n")
		})
	}
}

// xds finds principals by the Service that they find each other by, also where there is one.
func TestXDSFindsOnePrincipal(t *testing.T) {
	t.Parallel()
	names := make(map[string][]string)
	for _, object := range render(t, hub, "--set=server.address=hub.example.com,xds.enabled=true,principal.replicas=1,trustDomain=hub.example,istio.mode=sidecar") {
		names[object.GetKind()] = append(names[object.GetKind()], object.GetName())
	}
	require.Contains(t, names["Service"], "argocd-agent-principal-peers")
	require.Contains(t, names["DestinationRule"], "argocd-agent-principal-peers")
}
