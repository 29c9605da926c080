package argocd

import (
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Application is an application as the API server sends it. What it says is kept as it came: copying a status of
// fourteen kilobytes costs far less than understanding it.
type Application struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Spec      json.RawMessage `json:"spec,omitempty"`
	Status    json.RawMessage `json:"status,omitempty"`
	Operation json.RawMessage `json:"operation,omitempty"`
}

// DeepCopyObject returns a copy. The raw parts are shared, since nobody changes them.
func (a *Application) DeepCopyObject() runtime.Object {
	c := *a
	a.DeepCopyInto(&c.ObjectMeta)
	return &c
}
