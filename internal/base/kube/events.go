package kube

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typed "k8s.io/client-go/kubernetes/typed/core/v1"
)

// Events writes Kubernetes Events, which `kubectl describe` and `kubectl get events` show.
type Events struct {
	Client    typed.EventsGetter
	Component string // that reports them
}

// Warn writes a warning about an object, in its namespace. It need not exist. The reason is for programs, in CamelCase, the
// message for users.
func (e Events) Warn(ctx context.Context, about corev1.ObjectReference, reason, message string) error {
	now := metav1.Now()
	_, err := e.Client.Events(about.Namespace).Create(ctx, &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: about.Namespace, GenerateName: about.Name + "-"},
		InvolvedObject: about,
		Type:           corev1.EventTypeWarning, Reason: reason, Message: message,
		Source: corev1.EventSource{Component: e.Component}, FirstTimestamp: now, LastTimestamp: now, Count: 1,
	}, metav1.CreateOptions{})
	return err
}
