package argocd

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Raw is what an object decodes to that the API server sends.
type Raw interface {
	comparable
	runtime.Object
	metav1.Object
}

// Resource is a kind of objects. R is a pointer.
type Resource[R Raw] struct {
	Version      schema.GroupVersion
	Kind, Plural string
	New          func() R
	NewList      func() runtime.Object
	// Confidential says that nothing of what is in the objects may get into an error.
	Confidential bool
}

// GroupVersion is that of Argo CD's own objects.
var GroupVersion = schema.GroupVersion{Group: "argoproj.io", Version: "v1alpha1"} //nolint:gochecknoglobals // a constant

const kindApplication = "Application"

// Applications are Argo CD's applications.
func Applications() Resource[*Application] {
	return Resource[*Application]{
		Version: GroupVersion, Kind: kindApplication, Plural: "applications",
		New:     func() *Application { return &Application{} },
		NewList: func() runtime.Object { return &ApplicationList{} },
	}
}

// Projects are Argo CD's projects.
func Projects() Resource[*Object] { return objects(GroupVersion, "AppProject", "appprojects") }

// Secrets are Kubernetes' Secrets, in which Argo CD keeps repositories and their credentials.
func Secrets() Resource[*Object] {
	r := objects(schema.GroupVersion{Version: "v1"}, "Secret", "secrets")
	r.Confidential = true
	return r
}

// ConfigMaps are Kubernetes' ConfigMaps, in one of which Argo CD keeps GPG keys.
func ConfigMaps() Resource[*Object] {
	return objects(schema.GroupVersion{Version: "v1"}, "ConfigMap", "configmaps")
}

func objects(version schema.GroupVersion, kind, plural string) Resource[*Object] {
	return Resource[*Object]{
		Version: version, Kind: kind, Plural: plural,
		New:     func() *Object { return &Object{} },
		NewList: func() runtime.Object { return &ObjectList{} },
	}
}
