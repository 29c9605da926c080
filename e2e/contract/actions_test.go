package contract_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"pgregory.net/rapid"

	"github.com/argoproj/argo-cd/v3/util/lua"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/agent/policy"
)

// anyJSON is JSON as it is in a manifest, with what Lua cannot write: empty objects and lists, and nulls.
func anyJSON(depth int) *rapid.Generator[any] {
	scalars := []*rapid.Generator[any]{
		rapid.Map(rapid.StringMatching(`[a-z$ ]{0,5}`), func(s string) any { return s }),
		rapid.Map(rapid.Int64Range(-1<<40, 1<<40), func(n int64) any { return n }),
		rapid.Map(rapid.Bool(), func(b bool) any { return b }),
		rapid.Just[any](1.5),
	}
	if depth == 0 {
		return rapid.OneOf(scalars...)
	}
	inner := anyJSON(depth - 1)
	return rapid.OneOf(append(scalars,
		rapid.Map(rapid.MapOfN(rapid.StringMatching(`[a-zA-Z]{1,5}`), inner, 0, 3), func(m map[string]any) any { return m }),
		rapid.Map(rapid.SliceOfN(rapid.OneOf(scalars...), 0, 3), func(s []any) any { return s }),
		rapid.Map(rapid.SliceOfN(rapid.MapOfN(rapid.StringMatching(`[a-z]{1,5}`), inner, 1, 3), 0, 3), func(list []map[string]any) any {
			all := []any{}
			for _, one := range list {
				all = append(all, one)
			}
			return all
		}),
	)...)
}

func aJSONObject(depth int) *rapid.Generator[map[string]any] {
	return rapid.MapOfN(rapid.StringMatching(`[a-zA-Z]{1,6}`), anyJSON(depth), 1, 4)
}

func labels() *rapid.Generator[map[string]any] {
	return rapid.MapOfN(rapid.StringMatching(`[a-z]{1,4}(/[a-z]{1,4})?`), rapid.Map(rapid.StringMatching(`[a-z]{0,4}`), func(s string) any { return s }), 0, 2)
}

// owners are the objects from which Argo CD creates others, with its actions.
func owners() map[string]func(t *rapid.T) map[string]any {
	object := func(version, kind string, spec map[string]any) map[string]any {
		return map[string]any{
			"apiVersion": version, "kind": kind, "spec": spec,
			"metadata": map[string]any{"name": "an.owner-1", "namespace": "team", "uid": "u", "resourceVersion": "7"},
		}
	}
	return map[string]func(t *rapid.T) map[string]any{
		"create-job": func(t *rapid.T) map[string]any {
			template := map[string]any{"spec": aJSONObject(3).Draw(t, "spec")}
			if rapid.Bool().Draw(t, "metadata") {
				template["metadata"] = map[string]any{
					"creationTimestamp": nil, "name": "x", "labels": labels().Draw(t, "labels"), "annotations": labels().Draw(t, "annotations"),
				}
			}
			return object("batch/v1", "CronJob", map[string]any{"schedule": "* * * * *", "jobTemplate": template})
		},
		"create-workflow": func(t *rapid.T) map[string]any {
			if rapid.Bool().Draw(t, "template") {
				return object("argoproj.io/v1alpha1", "WorkflowTemplate", aJSONObject(2).Draw(t, "spec"))
			}
			owner := object("argoproj.io/v1alpha1", "CronWorkflow", map[string]any{"schedule": "* * * * *", "workflowSpec": aJSONObject(3).Draw(t, "spec")})
			if rapid.Bool().Draw(t, "metadata") {
				metadata := map[string]any{"finalizers": []any{"f"}}
				if some := labels().Draw(t, "labels"); len(some) > 0 { // the action fails for empty ones
					metadata["labels"] = some
				}
				if some := labels().Draw(t, "annotations"); len(some) > 0 {
					metadata["annotations"] = some
				}
				owner["spec"].(map[string]any)["workflowMetadata"] = metadata
				owner["metadata"].(map[string]any)["labels"] = map[string]any{"workflows.argoproj.io/controller-instanceid": "i"}
			}
			return owner
		},
	}
}

// created runs an action of Argo CD, and returns what it creates.
func created(t *rapid.T, action string, owner map[string]any) map[string]any {
	live := &unstructured.Unstructured{Object: owner}
	vm := lua.VM{}
	found, err := vm.GetResourceAction(live, action)
	require.NoError(t, err)
	impacted, err := vm.ExecuteResourceAction(live, found.ActionLua, nil)
	require.NoError(t, err)
	require.Len(t, impacted, 1)
	require.Equal(t, lua.CreateOperation, impacted[0].K8SOperation)
	return impacted[0].UnstructuredObj.Object
}

// copied is what comes out of JSON when an object has gone through it, with whole numbers as they are.
func copied(t *rapid.T, object map[string]any) map[string]any {
	text, err := json.Marshal(object)
	require.NoError(t, err)
	var read unstructured.Unstructured
	require.NoError(t, read.UnmarshalJSON(text))
	return read.Object
}

// What Argo CD's own scripts create from an object is what the agent expects, and what was changed in one place is not.
func TestActionsOfArgoCDCreateWhatTheDefaultRuleAllows(t *testing.T) {
	for action, draw := range owners() {
		t.Run(action, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				owner := draw(t)
				object := copied(t, created(t, action, copied(t, owner)))
				require.NoError(t, policy.CheckDerived(object, copied(t, owner)))
				changed := copied(t, object)
				where := changed
				for _, key := range rapid.SampledFrom([][]string{{}, {"metadata"}, {"spec"}, {"metadata", "labels"}, {"metadata", "annotations"}}).Draw(t, "where") {
					inner, ok := where[key].(map[string]any)
					if !ok {
						inner = map[string]any{}
						where[key] = inner
					}
					where = inner
				}
				where["added"+rapid.StringMatching(`[a-z]`).Draw(t, "added")] = anyJSON(1).Draw(t, "value")
				require.Error(t, policy.CheckDerived(changed, copied(t, owner)))
			})
		})
	}
}
