package cluster

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// Labels by which Argo CD's installations say what a workload is.
const (
	labelComponent = "app.kubernetes.io/component"
	labelPartOf    = "app.kubernetes.io/part-of"
	argoCD         = "argocd"
)

// Workload is a Deployment or a StatefulSet.
type Workload struct {
	Kind, Name string
	// Wanted is how many Pods are wanted, and Ready how many of them are ready.
	Wanted, Ready int32
	Template      corev1.PodTemplateSpec

	labels map[string]string
}

// String returns kind and name.
func (w *Workload) String() string { return w.Kind + " " + w.Name }

// Is reports whether it is a component of Argo CD, such as "server": by the labels of Argo CD's own installations, or else by its name.
func (w *Workload) Is(component string) bool {
	if is := w.labels[labelComponent]; is != "" && w.labels[labelPartOf] == argoCD {
		return is == component
	}
	return w.Name == argoCD+"-"+component
}

// Workloads returns the Deployments and StatefulSets of the client's namespace.
func (c *Client) Workloads(ctx context.Context) ([]Workload, error) {
	client, err := kubernetes.NewForConfig(c.config)
	if err != nil {
		return nil, err
	}
	var all []Workload
	deployments, err := client.AppsV1().Deployments(c.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("%s: list Deployments in namespace %s: %w", c, c.Namespace, c.explain(err))
	}
	for i := range deployments.Items {
		d := &deployments.Items[i]
		all = append(all, Workload{"Deployment", d.Name, wanted(d.Spec.Replicas), d.Status.ReadyReplicas, d.Spec.Template, d.Labels})
	}
	sets, err := client.AppsV1().StatefulSets(c.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("%s: list StatefulSets in namespace %s: %w", c, c.Namespace, c.explain(err))
	}
	for i := range sets.Items {
		s := &sets.Items[i]
		all = append(all, Workload{"StatefulSet", s.Name, wanted(s.Spec.Replicas), s.Status.ReadyReplicas, s.Spec.Template, s.Labels})
	}
	return all, nil
}

// wanted is one where nothing says how many (apps/v1, Replicas).
func wanted(replicas *int32) int32 {
	if replicas == nil {
		return 1
	}
	return *replicas
}

// Flag returns the last value of a flag among the words of the workload's containers, and whether it is there.
func (w *Workload) Flag(name string) (value string, there bool) {
	for i := range w.Template.Spec.Containers {
		container := &w.Template.Spec.Containers[i]
		words := slices.Concat(container.Command, container.Args)
		for at, word := range words {
			if text, ok := strings.CutPrefix(word, name+"="); ok {
				value, there = text, true
			} else if word == name {
				if value, there = "true", true; at+1 < len(words) && !strings.HasPrefix(words[at+1], "-") {
					value = words[at+1]
				}
			}
		}
	}
	return value, there
}

// Variable returns a variable of the workload's containers that has a value of its own; empty if none has.
func (w *Workload) Variable(name string) string {
	for i := range w.Template.Spec.Containers {
		for _, v := range w.Template.Spec.Containers[i].Env {
			if v.Name == name && v.Value != "" {
				return v.Value
			}
		}
	}
	return ""
}
