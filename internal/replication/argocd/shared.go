package argocd

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
)

// A Rule returns what is shared of an object of one kind, or why nothing may be. The source sends no more than that, and the
// replica object is given no more, whatever the other side sends. It does not change what it is given.
type Rule func(Content) (Content, error)

// Annotations of Argo CD's that say which application an object is a resource of. They are true in one cluster only: in another,
// an application of the same name would own the object, and prune it.
const (
	annotationTracking     = "argocd.argoproj.io/tracking-id"
	annotationInstallation = "argocd.argoproj.io/installation-id"
	labelInstance          = "app.kubernetes.io/instance"
)

// opaque is the type of the Secrets that Argo CD keeps repositories in. The API server takes an empty type for it.
const opaque = "Opaque"

// SharedSecret is the Rule for Secrets of one use. Of any other use Argo CD would take one for a cluster, say, which can run
// programs; and of other types Kubernetes itself fills in tokens. By other labels Argo CD takes Secrets for a part of its settings.
func SharedSecret(use string) Rule {
	return func(c Content) (Content, error) {
		switch {
		case c.Labels[LabelSecretType] != use:
			return Content{}, fmt.Errorf("its label %s is %q, and only Secrets of the use %q are shared here: correct the label",
				LabelSecretType, c.Labels[LabelSecretType], use)
		case c.Type != "" && c.Type != opaque:
			return Content{}, fmt.Errorf("it is of the type %q, and only Secrets of the type %s are shared: create it anew, of that type", c.Type, opaque)
		}
		return Content{
			Labels: map[string]string{LabelSecretType: use}, Annotations: argoCDAnnotations(c.Annotations), Type: opaque, Data: c.Data,
		}, nil
	}
}

// SharedKeys is the Rule for the ConfigMap of GPG keys. Argo CD finds it by its labels.
func SharedKeys(c Content) (Content, error) {
	labels := make(map[string]string)
	for k, v := range map[string]string{"app.kubernetes.io/name": KeysConfigMap, "app.kubernetes.io/part-of": "argocd"} {
		if c.Labels[k] == v {
			labels[k] = v
		}
	}
	return Content{Labels: labels, Annotations: argoCDAnnotations(c.Annotations), Data: c.Data, BinaryData: c.BinaryData}, nil
}

// SharedProject is the Rule for AppProjects. They keep their labels, since Argo CD finds global projects by any.
func SharedProject(c Content) (Content, error) {
	c = sharedProject(c)
	c.Spec = canonical(c.Spec)
	return c, nil
}

// sharedProject is SharedProject, with the spec as it comes.
func sharedProject(c Content) Content {
	labels := sharedLabels(c.Labels)
	delete(labels, labelInstance)
	return Content{Labels: labels, Annotations: argoCDAnnotations(c.Annotations), Spec: c.Spec}
}

// HubsProject is the Rule for AppProjects that come from a hub: what SharedProject leaves, closed to a namespace as closeTo does it unless
// that is empty, without roles, by which nobody logs in on a
// spoke, and without sourceNamespaces unless the mapping has applications outside of Argo CD's namespace. The hub sends neither
// (see Record.ForAgent); a principal that lies would give rights to the spoke's own applications by them.
func HubsProject(closed string, sourceNamespaces bool) Rule {
	return func(c Content) (Content, error) {
		c = sharedProject(c)
		if c.Spec = present(c.Spec); c.Spec == nil && closed == "" {
			return c, nil
		}
		spec, err := decodeObject(c.Spec)
		if err != nil {
			return c, fmt.Errorf("the project's spec: %w", err)
		}
		delete(spec, "roles")
		if !sourceNamespaces {
			delete(spec, "sourceNamespaces")
		}
		if closed != "" {
			if err := closeTo(spec, closed); err != nil {
				return c, err
			}
		}
		c.Spec, err = json.Marshal(spec)
		return c, err
	}
}

// SharedDefinition returns what is shared of an application. Its labels and annotations are its owner's, but for those that
// have a meaning to an agent or a principal. Of its finalizers only those that have its resources deleted are shared: others would
// wait for somebody who may not be there.
func SharedDefinition(d Definition) Definition {
	d.Labels, d.Annotations, d.Finalizers = sharedLabels(d.Labels), shared(d.Annotations), cascades(d.Finalizers)
	return d
}

// sharedLabels returns the labels without those of this project's own, by which one side decides what it shares.
func sharedLabels(labels map[string]string) map[string]string {
	out := maps.Clone(labels)
	maps.DeleteFunc(out, func(label, _ string) bool { return strings.HasPrefix(label, ownPrefix) })
	return out
}

// argoCDAnnotations returns the annotations that Argo CD reads, and that mean the same on both sides.
func argoCDAnnotations(annotations map[string]string) map[string]string {
	out := shared(annotations)
	maps.DeleteFunc(out, func(annotation, value string) bool {
		switch annotation {
		case "managed-by": // whether argocd-server may delete the Secret
			return value != "argocd.argoproj.io"
		case annotationTracking, annotationInstallation:
			return true
		}
		prefix, _, _ := strings.Cut(annotation, "/")
		return prefix != "argocd.argoproj.io" && prefix != "notifications.argoproj.io"
	})
	return out
}
