package argocd

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// List is a list of objects as the API server sends it. R is a pointer to E.
type List[E any, R interface {
	*E
	runtime.Object
}] struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	Items []E `json:"items"`
}

// ApplicationList is a list of applications.
type ApplicationList = List[Application, *Application]

// ObjectList is a list of objects.
type ObjectList = List[Object, *Object]

// DeepCopyObject returns a copy.
func (l *List[E, R]) DeepCopyObject() runtime.Object {
	c := *l
	l.DeepCopyInto(&c.ListMeta)
	c.Items = make([]E, len(l.Items))
	for i := range l.Items {
		c.Items[i] = *R(&l.Items[i]).DeepCopyObject().(R) //nolint:forcetypeassert // it returns no other
	}
	return &c
}
