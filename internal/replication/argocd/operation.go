package argocd

import (
	"encoding/json"
	"fmt"
	"reflect"
)

// IsOperation reports whether a JSON value could be an operation: an object that says something.
func IsOperation(raw json.RawMessage) bool {
	operation, err := decodeObject(raw)
	return err == nil && len(operation) > 0
}

// OwnSources returns what an operation would deploy that is not what the application's own spec says, empty if there is nothing: the
// name of the field that says so. argocd-server writes the application's own sources into each operation; those of a rollback are of
// another time. Which revision of a source is deployed is for the operation to say.
func OwnSources(operation, spec json.RawMessage) (field string, err error) {
	o, err := decodeObject(operation)
	if err != nil {
		return "", fmt.Errorf("operation: %w", err)
	}
	sync, _ := o["sync"].(map[string]any)
	if !isZero(sync["manifests"]) {
		return "sync.manifests", nil
	}
	own, err := normalizeSpec(spec)
	if err != nil {
		return "", err
	}
	asked := map[string]any{"source": sync["source"], "sources": sync["sources"]}
	specSchema.dropZero(asked)
	normalizeSource(asked["source"])
	sources, _ := asked["sources"].([]any)
	for _, s := range sources {
		normalizeSource(s)
	}
	switch {
	case !isZero(asked["source"]) && !reflect.DeepEqual(asked["source"], sourceOf(own)):
		return "sync.source", nil
	case !isZero(asked["sources"]) && !reflect.DeepEqual(asked["sources"], own["sources"]):
		return "sync.sources", nil
	}
	return "", nil
}

// sourceOf returns what Argo CD takes for the one source of an application (argo-cd, ApplicationSpec.GetSource).
func sourceOf(spec map[string]any) any {
	if hydrator, ok := spec["sourceHydrator"].(map[string]any); ok {
		dry, _ := hydrator["drySource"].(map[string]any)
		to, _ := hydrator["syncSource"].(map[string]any)
		source := map[string]any{"repoURL": to["repoURL"], "path": to["path"], "targetRevision": to["targetBranch"]}
		if isZero(source["repoURL"]) {
			source["repoURL"] = dry["repoURL"]
		}
		specSchema.objects["source"].dropZero(source)
		return source
	}
	if sources, ok := spec["sources"].([]any); ok && len(sources) > 0 {
		return sources[0]
	}
	return spec["source"]
}
