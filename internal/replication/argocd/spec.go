package argocd

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// normaliseSpec decodes an application's spec into the form that both sides compare: as the spoke's application
// controller leaves it (argo-cd, util/argo.NormalizeApplicationSpec), so that the controller's tidying is no drift.
func normaliseSpec(raw json.RawMessage) (map[string]any, error) {
	spec, err := decodeObject(raw)
	if err != nil {
		return nil, fmt.Errorf("spec: %w", err)
	}
	if p, _ := spec["project"].(string); p == "" {
		spec["project"] = DefaultProject
	}
	if policy, ok := spec["syncPolicy"].(map[string]any); ok && isEmpty(policy, syncPolicyFields) {
		delete(spec, "syncPolicy")
	}
	if sources, ok := spec["sources"].([]any); ok && len(sources) > 0 {
		for _, s := range sources {
			normaliseSource(s)
		}
	} else {
		normaliseSource(spec["source"])
	}
	return spec, nil
}

// normaliseSource drops the parameters of a source that say nothing, as the controller does.
func normaliseSource(source any) {
	s, ok := source.(map[string]any)
	if !ok {
		return
	}
	for kind, fields := range sourceFields {
		v, ok := s[kind].(map[string]any)
		if !ok {
			continue
		}
		if jsonnet, ok := v["jsonnet"].(map[string]any); ok && isEmpty(jsonnet, fieldMeanings{}) {
			delete(v, "jsonnet")
		}
		if isEmpty(v, fields) {
			delete(s, kind)
		}
	}
}

// fieldMeanings are the fields of an object that do not follow the rule that a field says something unless it is zero.
type fieldMeanings struct {
	// present fields say something by being there: "automated: {}" turns automation on.
	present map[string]bool
	// modifiers say nothing if nothing else does.
	modifiers map[string]bool
}

//nolint:gochecknoglobals // constants, as Argo CD's types have it in their methods IsZero
var (
	syncPolicyFields = fieldMeanings{present: map[string]bool{
		"automated": true, "retry": true, "managedNamespaceMetadata": true,
	}}
	sourceFields = map[string]fieldMeanings{
		"kustomize": {modifiers: map[string]bool{
			"forceCommonLabels": true, "forceCommonAnnotations": true, "commonAnnotationsEnvsubst": true,
			"labelWithoutSelector": true, "labelIncludeTemplates": true,
		}},
		"helm":      {present: map[string]bool{"valuesObject": true}},
		"directory": {},
	}
)

// isEmpty reports whether a decoded object says nothing. A field that nobody has heard of says something unless it is
// zero: it may be of a later release, and must not get lost.
func isEmpty(object map[string]any, fields fieldMeanings) bool {
	for field, v := range object {
		if fields.modifiers[field] {
			continue
		}
		if v != nil && fields.present[field] || !isZero(v) {
			return false
		}
	}
	return true
}

// isZero reports whether Argo CD's types would leave a decoded JSON value out.
func isZero(v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case bool:
		return !v
	case string:
		return v == ""
	case []any:
		return len(v) == 0
	case map[string]any:
		return len(v) == 0
	default:
		return false
	}
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
