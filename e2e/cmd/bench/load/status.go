package load

import (
	"encoding/json"
	"fmt"
)

// Resources is how many resources a Status speaks of.
const Resources = 50

// Status is a status of an Application, written out once to be given to many.
type Status struct {
	// Revision tells it from all others.
	Revision string

	patch []byte
}

// Statuses are n statuses that differ as an Application's do when somebody pushes a new commit: in the revision, in a
// time, and in how one of the resources is.
func Statuses(n int) ([]Status, error) {
	statuses := make([]Status, n)
	for i := range statuses {
		statuses[i].Revision = fmt.Sprintf("%040x", i+1)
		patch, err := json.Marshal(map[string]any{"status": content(statuses[i].Revision, i)})
		if err != nil {
			return nil, fmt.Errorf("status: %w", err)
		}
		statuses[i].patch = patch
	}
	return statuses, nil
}

// JSON is the status itself.
func (s Status) JSON() json.RawMessage {
	const before, after = `{"status":`, `}`
	return json.RawMessage(s.patch[len(before) : len(s.patch)-len(after)])
}

// Size is how many bytes of JSON it is.
func (s Status) Size() int { return len(s.JSON()) }

func content(revision string, turn int) map[string]any {
	at := fmt.Sprintf("2026-01-01T00:%02d:%02dZ", turn/60%60, turn%60)
	resources, results := make([]any, Resources), make([]any, Resources)
	for i := range resources {
		health := "Healthy"
		if i == turn%Resources {
			health = "Progressing"
		}
		name := fmt.Sprintf("workload-%02d", i)
		resources[i] = map[string]any{
			"group": "apps", "version": "v1", "kind": "Deployment", "namespace": "prod", "name": name,
			"status": "Synced", "health": map[string]any{"status": health},
		}
		results[i] = map[string]any{
			"group": "apps", "version": "v1", "kind": "Deployment", "namespace": "prod", "name": name,
			"status": "Synced", "message": "configured",
		}
	}
	source := map[string]any{
		"repoURL": "https://git.example.org/team/deployments.git", "path": "overlays/production", "targetRevision": "main",
	}
	return map[string]any{
		"health": map[string]any{"status": "Progressing"},
		"sync": map[string]any{
			"status": "Synced", "revision": revision,
			"comparedTo": map[string]any{
				"source": source, "destination": map[string]any{"name": "in-cluster", "namespace": "production"},
			},
		},
		"resources": resources,
		"operationState": map[string]any{
			"operation":  map[string]any{"sync": map[string]any{"revision": revision}},
			"phase":      "Succeeded",
			"startedAt":  at,
			"finishedAt": at,
			"message":    "successfully synced (all tasks run)",
			"syncResult": map[string]any{"revision": revision, "source": source, "resources": results},
		},
		"reconciledAt": at,
		"sourceType":   "Kustomize",
		"summary":      map[string]any{"images": []any{"registry.example.org/team/workload:1.0.0"}},
	}
}
