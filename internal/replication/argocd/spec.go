package argocd

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// normalizeSpec decodes an application's spec into the form that both sides compare: as Argo CD's controller stores it after an
// automated sync (argo-cd, util/argo.NormalizeApplicationSpec, then the JSON encoding of its types), so that this is no drift.
func normalizeSpec(raw json.RawMessage) (map[string]any, error) {
	spec, err := decodeObject(raw)
	if err != nil {
		return nil, fmt.Errorf("spec: %w", err)
	}
	if p, _ := spec["project"].(string); p == "" {
		spec["project"] = DefaultProject
	}
	specSchema.dropZero(spec)
	if policy, ok := spec["syncPolicy"].(map[string]any); ok && len(policy) == 0 {
		delete(spec, "syncPolicy")
	}
	if sources, ok := spec["sources"].([]any); ok {
		for _, s := range sources {
			normalizeSource(s)
		}
	} else {
		normalizeSource(spec["source"])
	}
	return spec, nil
}

// normalizeSource drops the tools of a source that have no parameters, as the controller does.
func normalizeSource(source any) {
	s, ok := source.(map[string]any)
	if !ok {
		return
	}
	for _, tool := range []string{"helm", "kustomize", "directory"} {
		if v, ok := s[tool].(map[string]any); ok && !hasParameters(v) {
			delete(s, tool)
		}
	}
}

// hasParameters reports whether the object of a tool has any field that changes what the tool does by itself.
func hasParameters(tool map[string]any) bool {
	for field := range tool {
		switch field {
		case "forceCommonLabels", "forceCommonAnnotations", "commonAnnotationsEnvsubst", "labelWithoutSelector", "labelIncludeTemplates":
			// Only Kustomize has these. They change other parameters of its.
		default:
			return true
		}
	}
	return false
}

// decodeObject decodes a JSON object, keeping numbers as they are written.
func decodeObject(raw json.RawMessage) (map[string]any, error) {
	if len(raw) == 0 {
		return make(map[string]any), nil
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var out map[string]any
	if err := d.Decode(&out); err != nil {
		return nil, fmt.Errorf("decode: %w", err)
	}
	if out == nil {
		out = make(map[string]any)
	}
	return out, nil
}
