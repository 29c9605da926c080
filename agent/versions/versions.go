// Package versions finds which Kubernetes and which Argo CD a spoke runs, for operators of the hub to see. Nothing is decided by them.
package versions

import (
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/kubernetes"
)

const (
	// timeout is how long the API server may take. The agent connects to the hub after that, with what was known before.
	timeout = 2 * time.Second
	// fresh is how long what was found is not asked for again: a connection that comes back costs nothing.
	fresh = 10 * time.Minute
	// controllers selects Argo CD's application controller as its manifests, its Helm chart and its operator label it. A spoke has no
	// other part of Argo CD for certain, and Argo CD writes its version into no object.
	controllers = "app.kubernetes.io/component=application-controller,app.kubernetes.io/part-of=argocd"
	// versionLabel has the version if the image does not, such as one that is named by its digest. Argo CD's Helm chart sets it.
	versionLabel = "app.kubernetes.io/version"
)

// Versions are those of what a spoke runs, empty where it is not known.
type Versions struct{ Kubernetes, ArgoCD string }

// Finder finds a spoke's versions. It is for one goroutine.
type Finder struct {
	client    kubernetes.Interface
	namespace string
	logger    *slog.Logger
	last      Versions
	at        time.Time // when last was found whole
}

// New returns a Finder for the Argo CD in a namespace.
func New(client kubernetes.Interface, namespace string, logger *slog.Logger) *Finder {
	return &Finder{client: client, namespace: namespace, logger: logger}
}

// Find returns the versions as they were minutes ago at most, or as they were last found if the API server does not say. It takes two
// seconds at most.
func (f *Finder) Find(ctx context.Context) Versions {
	if !f.at.IsZero() && time.Since(f.at) < fresh {
		return f.last
	}
	whole := true
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for _, find := range []struct {
		what   string
		of     func(context.Context) (string, error)
		target *string
	}{{"Kubernetes", f.kubernetes, &f.last.Kubernetes}, {"Argo CD", f.argoCD, &f.last.ArgoCD}} {
		found, err := find.of(ctx)
		if err != nil {
			whole = false
			f.logger.Debug("The hub is not told which version this cluster runs", "of", find.what, "error", err)
			continue
		}
		*find.target = found
	}
	if whole {
		f.at = time.Now()
	}
	return f.last
}

func (f *Finder) kubernetes(ctx context.Context) (string, error) {
	answer, err := f.client.Discovery().RESTClient().Get().AbsPath("/version").DoRaw(ctx)
	if err != nil {
		return "", err
	}
	var about version.Info
	return about.GitVersion, json.Unmarshal(answer, &about)
}

// argoCD returns the version of the application controller, which is a StatefulSet, or a Deployment where shards are balanced
// dynamically. What is scaled to none, as one of the two, does not count.
func (f *Finder) argoCD(ctx context.Context) (string, error) {
	options := metav1.ListOptions{LabelSelector: controllers}
	sets, err := f.client.AppsV1().StatefulSets(f.namespace).List(ctx, options)
	if err != nil {
		return "", err
	}
	for i := range sets.Items {
		if found := versionOf(sets.Items[i].Labels, sets.Items[i].Spec.Replicas, sets.Items[i].Spec.Template.Spec.Containers); found != "" {
			return found, nil
		}
	}
	deployments, err := f.client.AppsV1().Deployments(f.namespace).List(ctx, options)
	if err != nil {
		return "", err
	}
	for i := range deployments.Items {
		d := &deployments.Items[i]
		if found := versionOf(d.Labels, d.Spec.Replicas, d.Spec.Template.Spec.Containers); found != "" {
			return found, nil
		}
	}
	return "", nil
}

// versionOf returns the version that the image of a controller has for a tag, or that its label says.
func versionOf(labels map[string]string, replicas *int32, containers []corev1.Container) string {
	if replicas != nil && *replicas == 0 {
		return ""
	}
	for i := range containers {
		if tag := tagOf(containers[i].Image); strings.HasSuffix(containers[i].Name, "application-controller") && isVersion(tag) {
			return tag
		}
	}
	return labels[versionLabel]
}

// tagOf returns the tag of an image reference, [HOST[:PORT]/]NAME[:TAG][@DIGEST].
func tagOf(image string) string {
	image, _, _ = strings.Cut(image, "@")
	_, tag, _ := strings.Cut(image[strings.LastIndexByte(image, '/')+1:], ":")
	return tag
}

// isVersion tells v3.1.0 from latest, stable and the like.
func isVersion(tag string) bool {
	number := strings.TrimPrefix(tag, "v")
	return number != "" && number[0] >= '0' && number[0] <= '9' && strings.Contains(number, ".")
}
