package argocd

import (
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Object is an AppProject, a Secret or a ConfigMap as the API server sends it. What it says is kept as it came: the data
// of a Secret are in base64.
type Object struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Type       string            `json:"type,omitempty"`       // of a Secret
	Spec       json.RawMessage   `json:"spec,omitempty"`       // of an AppProject
	Data       map[string]string `json:"data,omitempty"`       // of a Secret or a ConfigMap
	BinaryData map[string]string `json:"binaryData,omitempty"` // of a ConfigMap, in base64
	Immutable  bool              `json:"immutable,omitempty"`  // nobody may change the data of the Secret or ConfigMap any more
}

// DeepCopyObject returns a copy. What is not metadata is shared, since nobody changes it.
func (o *Object) DeepCopyObject() runtime.Object {
	c := *o
	o.DeepCopyInto(&c.ObjectMeta)
	return &c
}
