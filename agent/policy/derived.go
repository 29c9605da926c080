package policy

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// What Argo CD's own actions create, and from what. The labels and annotations are those that its actions write.
const (
	batchGroup = "batch"

	manualAnnotation    = "cronjob.kubernetes.io/instantiate"
	cronWorkflowLabel   = "workflows.argoproj.io/cron-workflow"
	templateLabel       = "workflows.argoproj.io/workflow-template"
	controllerLabel     = "workflows.argoproj.io/controller-instanceid"
	scheduledAnnotation = "workflows.argoproj.io/scheduled-time"
)

// derivation is an action of Argo CD that creates an object from another, its owner.
type derivation struct {
	resource schema.GroupResource // that is created
	owner    schema.GroupKind
	owners   string // resource of the owner
	// derive returns what the action creates from an owner, without what differs each time.
	derive func(owner map[string]any) map[string]any
}

// derivations are all actions of Argo CD that create something.
func derivations() []derivation {
	workflows := schema.GroupResource{Group: argoGroup, Resource: "workflows"}
	return []derivation{
		{schema.GroupResource{Group: batchGroup, Resource: "jobs"}, schema.GroupKind{Group: batchGroup, Kind: "CronJob"}, "cronjobs", jobOf},
		{workflows, schema.GroupKind{Group: argoGroup, Kind: "CronWorkflow"}, "cronworkflows", workflowOfCron},
		{workflows, schema.GroupKind{Group: argoGroup, Kind: "WorkflowTemplate"}, "workflowtemplates", workflowOfTemplate},
	}
}

// CheckDerived returns nil if an object is what an action of Argo CD creates from its owner as it is now, and otherwise where it
// differs. Both are JSON objects. It reads no other owner: the caller has found it by the only ownerReference of the object.
func CheckDerived(object, owner map[string]any) error {
	for _, d := range derivations() {
		version, _ := schema.ParseGroupVersion(text(owner, "apiVersion"))
		if text(owner, "kind") == d.owner.Kind && version.Group == d.owner.Group && text(object, "kind") == text(d.derive(owner), "kind") {
			return d.check(object, owner)
		}
	}
	return fmt.Errorf("no action of Argo CD creates a %s from a %s", text(object, "kind"), text(owner, "kind"))
}

func (d derivation) check(object, owner map[string]any) error {
	object = maps.Clone(object)
	metadata := maps.Clone(member(object, "metadata"))
	number, named := strings.CutPrefix(text(metadata, "name"), text(owner, "metadata", "name")+"-")
	if !named || number == "" || strings.Trim(number, "0123456789") != "" {
		return fmt.Errorf("metadata.name: it is not that of its owner, a dash and digits")
	}
	delete(metadata, "name")
	annotations := maps.Clone(member(metadata, "annotations"))
	if at, scheduled := annotations[scheduledAnnotation].(string); scheduled {
		if _, err := time.Parse(time.RFC3339, at); err != nil {
			return fmt.Errorf("metadata.annotations.%s: it is no time", scheduledAnnotation)
		}
		delete(annotations, scheduledAnnotation)
		metadata["annotations"] = annotations
	}
	object["metadata"] = metadata
	if where := difference(d.derive(owner), object); where != nil {
		slices.Reverse(where)
		return fmt.Errorf("%.200s: it is not what the owner's template gives", strings.Join(where, "."))
	}
	return nil
}

// jobOf is what the action create-job makes of a CronJob.
func jobOf(owner map[string]any) map[string]any {
	template := member(owner, "spec", "jobTemplate")
	metadata := maps.Clone(member(template, "metadata"))
	if metadata == nil {
		metadata = make(map[string]any)
	}
	annotations := maps.Clone(member(metadata, "annotations"))
	if annotations == nil {
		annotations = make(map[string]any)
	}
	annotations[manualAnnotation] = "manual"
	delete(metadata, "name")
	metadata["annotations"], metadata["namespace"] = annotations, text(owner, "metadata", "namespace")
	reference := referenceTo(owner)
	reference["blockOwnerDeletion"], reference["controller"] = true, true
	metadata["ownerReferences"] = []any{reference}
	return map[string]any{"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": template["spec"]}
}

// workflowOfCron is what the action create-workflow makes of a CronWorkflow.
func workflowOfCron(owner map[string]any) map[string]any {
	from := member(owner, "spec", "workflowMetadata")
	labels := maps.Clone(member(from, "labels"))
	if labels == nil {
		labels = make(map[string]any)
	}
	labels[cronWorkflowLabel] = text(owner, "metadata", "name")
	if instance := text(owner, "metadata", "labels", controllerLabel); instance != "" {
		labels[controllerLabel] = instance
	}
	annotations := maps.Clone(member(from, "annotations"))
	delete(annotations, scheduledAnnotation)
	made := workflowOf(owner, labels, member(owner, "spec")["workflowSpec"])
	member(made, "metadata")["annotations"] = annotations
	made["finalizers"] = from["finalizers"] // where the action writes them, though they mean nothing there
	return made
}

// workflowOfTemplate is what the action create-workflow makes of a WorkflowTemplate.
func workflowOfTemplate(owner map[string]any) map[string]any {
	name := text(owner, "metadata", "name")
	return workflowOf(owner, map[string]any{templateLabel: name},
		map[string]any{"workflowTemplateRef": map[string]any{"name": name}})
}

func workflowOf(owner, labels map[string]any, spec any) map[string]any {
	return map[string]any{
		"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "spec": spec,
		"metadata": map[string]any{
			"namespace": text(owner, "metadata", "namespace"), "labels": labels, "ownerReferences": []any{referenceTo(owner)},
		},
	}
}

func referenceTo(owner map[string]any) map[string]any {
	return map[string]any{
		"apiVersion": text(owner, "apiVersion"), "kind": text(owner, "kind"),
		"name": text(owner, "metadata", "name"), "uid": text(owner, "metadata", "uid"),
	}
}

// member returns an object within an object, nil if there is none.
func member(object map[string]any, path ...string) map[string]any {
	for _, key := range path {
		object, _ = object[key].(map[string]any)
	}
	return object
}

// text returns a string within an object, empty if there is none.
func text(object map[string]any, path ...string) string {
	last := len(path) - 1
	value, _ := member(object, path[:last]...)[path[last]].(string)
	return value
}

// difference returns where JSON differs from what is wanted, the innermost key first, and nil if it does not. Argo CD's actions
// are in Lua, which has no empty objects and lists: copies lack them, or have an empty list in place of what held nothing else.
func difference(want, got any) []string {
	if hollow(want) && empty(got) {
		return nil
	}
	switch want := want.(type) {
	case map[string]any:
		got, ok := got.(map[string]any)
		if !ok {
			return []string{}
		}
		return differentKey(want, got)
	case []any:
		got, ok := got.([]any)
		if !ok {
			return []string{}
		}
		return differentElement(want, got)
	default:
		if !sameScalar(want, got) {
			return []string{}
		}
		return nil
	}
}

func differentKey(want, got map[string]any) []string {
	for key, value := range got {
		wanted, ok := want[key]
		if !ok {
			return []string{key}
		}
		if where := difference(wanted, value); where != nil {
			return append(where, key)
		}
	}
	for key, value := range want {
		if _, ok := got[key]; !ok && !hollow(value) {
			return []string{key}
		}
	}
	return nil
}

func differentElement(want, got []any) []string {
	if len(got) != len(want) {
		want = slices.DeleteFunc(slices.Clone(want), hollow)
	}
	if len(got) != len(want) {
		return []string{}
	}
	for i := range want {
		if where := difference(want[i], got[i]); where != nil {
			return append(where, fmt.Sprint(i))
		}
	}
	return nil
}

// empty reports whether JSON is a null, {} or [].
func empty(value any) bool {
	switch value := value.(type) {
	case nil:
		return true
	case map[string]any:
		return len(value) == 0
	case []any:
		return len(value) == 0
	default:
		return false
	}
}

// hollow reports whether JSON has no value in it.
func hollow(value any) bool {
	switch value := value.(type) {
	case nil:
		return true
	case map[string]any:
		for _, inner := range value {
			if !hollow(inner) {
				return false
			}
		}
		return true
	case []any:
		return !slices.ContainsFunc(value, func(inner any) bool { return !hollow(inner) })
	default:
		return false
	}
}

// sameScalar reports whether two strings, numbers or booleans are equal. Lua writes 1.0 as 1.
func sameScalar(a, b any) bool {
	if whole, ok := a.(int64); ok {
		if fraction, ok := b.(float64); ok {
			return float64(whole) == fraction
		}
	}
	if fraction, ok := a.(float64); ok {
		if whole, ok := b.(int64); ok {
			return float64(whole) == fraction
		}
	}
	return a == b
}
