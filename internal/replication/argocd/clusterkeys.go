package argocd

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/validation"
)

// Limits of the labels, and of the annotations, that an agent may say its cluster has. Those of a cluster do not come close.
const (
	MaxClusterKeys = 32
	// MaxClusterKey and MaxClusterValue are in bytes.
	MaxClusterKey   = validation.DNS1123SubdomainMaxLength + 1 + validation.LabelValueMaxLength
	MaxClusterValue = 1024
)

// ClusterKeys are labels and annotations of an agent's cluster Secret, besides those that make it one. ApplicationSets select clusters
// by the labels, and may put both into Applications.
type ClusterKeys struct {
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// With returns the keys with others added, which win.
func (k ClusterKeys) With(others ClusterKeys) ClusterKeys {
	both := ClusterKeys{Labels: maps.Clone(k.Labels), Annotations: maps.Clone(k.Annotations)}
	merge(&both.Labels, others.Labels)
	merge(&both.Annotations, others.Annotations)
	return both
}

// Check reports the first key that an operator may not set, sorted: one that marks a cluster Secret, or one that the API server
// would refuse.
func (k ClusterKeys) Check() error {
	for _, key := range slices.Sorted(maps.Keys(k.Labels)) {
		if err := checkLabel(key, k.Labels[key]); err != nil {
			return err
		}
		if key == LabelMode {
			return fmt.Errorf("%s: this label is reserved", key)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(k.Annotations)) {
		if err := checkAnnotation(key, k.Annotations[key]); err != nil {
			return err
		}
	}
	return CheckClusterLabels(k.Labels)
}

// CheckClusterLabels refuses labels that mark a cluster Secret.
func CheckClusterLabels(labels map[string]string) error {
	for _, own := range []string{LabelSecretType, LabelAgent, LabelSelfRegistered} {
		if _, ok := labels[own]; ok {
			return fmt.Errorf("%s: this label is reserved", own)
		}
	}
	return nil
}

// CheckAgentLabel says why a label of its cluster may not come from an agent, whatever the hub allows.
func CheckAgentLabel(key, value string) error {
	if isReserved(key) {
		return errReserved(key)
	}
	return checkLabel(key, value)
}

// CheckAgentAnnotation is CheckAgentLabel for annotations.
func CheckAgentAnnotation(key, value string) error {
	if isReserved(key) {
		return errReserved(key)
	}
	return checkAnnotation(key, value)
}

func errReserved(key string) error {
	return fmt.Errorf("%.100q: Kubernetes' and Argo CD's programs read this key, and no agent may set it", key)
}

// isReserved reports whether programs of Kubernetes, of the Argo project, or this one, read a label or annotation of a cluster Secret.
func isReserved(key string) bool {
	domain, _, _ := strings.Cut(key, "/")
	for _, family := range []string{"kubernetes.io", "k8s.io"} {
		if domain == family || strings.HasSuffix(domain, "."+family) {
			return true
		}
	}
	return isSteering(key) || key == annotationManagedBy
}

func checkLabel(key, value string) error {
	if problems := validation.IsQualifiedName(key); len(problems) > 0 {
		return fmt.Errorf("%.100q: no key of a label: %s", key, strings.Join(problems, "; "))
	}
	if problems := validation.IsValidLabelValue(value); len(problems) > 0 {
		return fmt.Errorf("%s: no value of a label: %s", key, strings.Join(problems, "; "))
	}
	return nil
}

func checkAnnotation(key, value string) error {
	if problems := validation.IsQualifiedName(strings.ToLower(key)); len(problems) > 0 { // as the API server has it
		return fmt.Errorf("%.100q: no key of an annotation: %s", key, strings.Join(problems, "; "))
	}
	switch key {
	case AnnotationSkipReconcile, annotationManagedBy, annotationRegistered:
		return fmt.Errorf("%s: this annotation is reserved", key)
	}
	if len(value) > MaxClusterValue || !utf8.ValidString(value) {
		return fmt.Errorf("%s: want UTF-8 text of at most %d bytes", key, MaxClusterValue)
	}
	return nil
}

// ParseClusterKeys takes labels and annotations apart that are given as key=value.
func ParseClusterKeys(labels, annotations []string) (ClusterKeys, error) {
	var keys ClusterKeys
	for _, side := range []struct {
		pairs []string
		into  *map[string]string
	}{{labels, &keys.Labels}, {annotations, &keys.Annotations}} {
		for _, pair := range side.pairs {
			key, value, ok := strings.Cut(pair, "=")
			if !ok {
				return ClusterKeys{}, fmt.Errorf("%q: want key=value", pair)
			}
			merge(side.into, map[string]string{strings.TrimSpace(key): strings.TrimSpace(value)})
		}
	}
	return keys, nil
}
