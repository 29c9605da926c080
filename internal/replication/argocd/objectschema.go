package argocd

import (
	"encoding/json"
	"maps"
	"strings"
)

// objectSchema says which fields of a JSON object Argo CD's types leave out when they encode it. They keep what is a pointer, such as
// "automated: {}" or "prune: false", and what has to be there. A field that is not in a schema may be of a later release, and
// stays as it is.
type objectSchema struct {
	omitsZero []string                 // fields that are left out if they are false, 0 or empty
	objects   map[string]*objectSchema // fields that are objects, or lists of objects
}

// specSchema is that of an application's spec. The contract test with Argo CD's types proves that it is complete.
var specSchema = newSpecSchema() //nolint:gochecknoglobals // a constant

func newSpecSchema() *objectSchema {
	tools := toolSchemas()
	return &objectSchema{
		omitsZero: fields("ignoreDifferences info sources"),
		objects: map[string]*objectSchema{
			"source":      sourceSchema(tools),
			"sources":     sourceSchema(tools),
			"destination": {omitsZero: fields("server namespace name")},
			"syncPolicy": {
				omitsZero: fields("syncOptions"),
				objects: map[string]*objectSchema{
					"automated": {},
					"retry": {
						omitsZero: fields("limit refresh"),
						objects:   map[string]*objectSchema{"backoff": {omitsZero: fields("duration maxDuration")}},
					},
					"managedNamespaceMetadata": {omitsZero: fields("labels annotations")},
				},
			},
			"ignoreDifferences": {omitsZero: fields("group name namespace jsonPointers jqPathExpressions managedFieldsManagers")},
			"sourceHydrator": {objects: map[string]*objectSchema{
				"drySource":  {objects: tools},
				"syncSource": {omitsZero: fields("repoURL")},
			}},
		},
	}
}

func sourceSchema(tools map[string]*objectSchema) *objectSchema {
	return &objectSchema{omitsZero: fields("path targetRevision chart ref name tagPrefix"), objects: tools}
}

// toolSchemas are those of the tools that make manifests of a source.
func toolSchemas() map[string]*objectSchema {
	return map[string]*objectSchema{
		"helm": {
			omitsZero: fields("valueFiles parameters releaseName values fileParameters version passCredentials ignoreMissingValueFiles " +
				"skipCrds namespace kubeVersion apiVersions skipTests skipSchemaValidation"),
			objects: map[string]*objectSchema{
				"parameters":     {omitsZero: fields("name value forceString")},
				"fileParameters": {omitsZero: fields("name path")},
			},
		},
		"kustomize": {
			omitsZero: fields("namePrefix nameSuffix images commonLabels version commonAnnotations forceCommonLabels forceCommonAnnotations " +
				"namespace commonAnnotationsEnvsubst replicas patches components ignoreMissingComponents labelWithoutSelector kubeVersion " +
				"apiVersions labelIncludeTemplates"),
			objects: map[string]*objectSchema{"patches": {
				omitsZero: fields("path patch options"),
				objects: map[string]*objectSchema{"target": {
					omitsZero: fields("group version kind name namespace annotationSelector labelSelector"),
				}},
			}},
		},
		"directory": {
			omitsZero: fields("recurse jsonnet exclude include"),
			objects: map[string]*objectSchema{"jsonnet": {
				omitsZero: fields("extVars tlas libs"),
				objects:   map[string]*objectSchema{"extVars": {omitsZero: fields("code")}, "tlas": {omitsZero: fields("code")}},
			}},
		},
		"plugin": {
			omitsZero: fields("name env parameters"),
			// Argo CD always writes the name of a parameter. Without one is the same as with an empty one, and shorter.
			objects: map[string]*objectSchema{"parameters": {omitsZero: fields("name")}},
		},
	}
}

func fields(names string) []string { return strings.Fields(names) }

// dropZero drops the fields of a decoded object, or of the objects of a list, that Argo CD's types leave out. A field that is
// null says no more than one that is missing.
func (s *objectSchema) dropZero(v any) {
	switch v := v.(type) {
	case []any:
		for _, item := range v {
			s.dropZero(item)
		}
	case map[string]any:
		maps.DeleteFunc(v, func(_ string, field any) bool { return field == nil })
		for field, of := range s.objects {
			of.dropZero(v[field])
		}
		for _, field := range s.omitsZero {
			if isZero(v[field]) {
				delete(v, field)
			}
		}
	}
}

// isZero reports whether a decoded JSON value is null, false, 0 or empty.
func isZero(v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case bool:
		return !v
	case string:
		return v == ""
	case json.Number:
		return v == "0"
	case []any:
		return len(v) == 0
	case map[string]any:
		return len(v) == 0
	default:
		return false
	}
}
