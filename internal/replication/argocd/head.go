package argocd

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Head is what is kept of the metadata of any object.
type Head struct {
	Name        types.NamespacedName
	UID         types.UID
	Version     string // the resource version
	Labels      map[string]string
	Annotations map[string]string
	Finalizers  []string
	Deleting    bool // it has a deletion timestamp
}

// headOf returns what is kept of an object's metadata.
func headOf(m *metav1.ObjectMeta) Head {
	return Head{
		Name:        types.NamespacedName{Namespace: m.Namespace, Name: m.Name},
		UID:         m.UID,
		Version:     m.ResourceVersion,
		Labels:      m.Labels,
		Annotations: m.Annotations,
		Finalizers:  m.Finalizers,
		Deleting:    m.DeletionTimestamp != nil,
	}
}

// Metadata returns the head itself: by it those who know nothing of a kind get at what all kinds have.
func (h *Head) Metadata() *Head { return h }

// SourceUID returns the UID of the object, in the other cluster, that this one was made from; empty if it was not.
func (h *Head) SourceUID() string { return h.Annotations[AnnotationSourceUID] }
