package ownership

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/follow"
)

// How Argo CD marks the objects that it manages, and its settings for that.
const (
	settingsName           = "argocd-cm"
	trackingMethodKey      = "application.resourceTrackingMethod"
	instanceLabelKey       = "application.instanceLabelKey"
	installationKey        = "installationID"
	trackingAnnotation     = "argocd.argoproj.io/tracking-id"
	installationAnnotation = "argocd.argoproj.io/installation-id"
	trackByLabel           = "label"
	defaultInstanceLabel   = "app.kubernetes.io/instance"
)

// tracking is how Argo CD marks what it manages. Its zero value is Argo CD's default.
type tracking struct {
	label        string // the label, if it is by one
	installation string // that the objects must be marked with
}

// followSettings follows Argo CD's settings.
func followSettings(client cache.Getter, namespace string) *follow.Store[*corev1.ConfigMap, *tracking] {
	o := follow.ConfigMap[*tracking](client, namespace, settingsName)
	o.Reduce = readTracking
	return follow.New(o)
}

func readTracking(m *corev1.ConfigMap, _ *tracking) *tracking {
	t := &tracking{installation: m.Data[installationKey]}
	if m.Data[trackingMethodKey] == trackByLabel {
		t.label = m.Data[instanceLabelKey]
		if t.label == "" {
			t.label = defaultInstanceLabel
		}
	}
	return t
}

// owner returns the instance name in the tracking mark of an object, empty if there is none.
func (t *tracking) owner(o *metav1.PartialObjectMetadata, k kind) string {
	if t.label != "" {
		return o.Labels[t.label]
	}
	if t.installation != "" && o.Annotations[installationAnnotation] != t.installation {
		return ""
	}
	application, of, _ := strings.Cut(o.Annotations[trackingAnnotation], ":")
	// The mark must name this object, because tools copy annotations to other objects. Cluster-scoped objects are marked with
	// the destination namespace of their Application.
	at, rest, _ := strings.Cut(of, ":")
	namespace, name, _ := strings.Cut(rest, "/")
	if at != k.group+"/"+k.kind || name != o.Name || k.namespaced && namespace != o.Namespace {
		return ""
	}
	return application
}
