// Package place is where the command-line tool finds and keeps things: a namespace on the hub, or one on a spoke. It knows
// Secrets, and when one may be overwritten; what is in them is for others to say.
package place

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typed "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/kube"
)

// requestTimeout is how long an API server may take for one request. Without it a person would wait for one that is away.
const requestTimeout = 30 * time.Second

// Options say where a place is.
type Options struct {
	// Title is what people call the cluster: "the hub", "the agent's cluster".
	Title string
	// Kubeconfig and Context are as in package kube; Namespace is in that cluster.
	Kubeconfig, Context, Namespace string
	// ContextFlag is the flag that sets Context, for messages.
	ContextFlag string
}

// Place is a namespace of a cluster.
type Place struct {
	Namespace string

	title, context, server string
	contextFlag            string
	core                   typed.CoreV1Interface
}

// Open returns a place. Nothing is asked of its API server yet.
func Open(o Options) (*Place, error) {
	all, current, err := kube.Contexts(o.Kubeconfig)
	if err != nil {
		return nil, err
	}
	if o.Context != "" && !slices.Contains(all, o.Context) {
		if len(all) == 0 {
			return nil, fmt.Errorf("%s: there is no context %q, nor any other: set KUBECONFIG or --kubeconfig to a file that has it", o.ContextFlag, o.Context)
		}
		return nil, fmt.Errorf("%s: there is no context %q: use one of %s", o.ContextFlag, o.Context, strings.Join(all, ", "))
	}
	config, err := kube.Config(kube.Options{Kubeconfig: o.Kubeconfig, Context: o.Context, Program: "argocd-agentctl"})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", o.Title, err)
	}
	config.Timeout = requestTimeout
	core, err := typed.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", o.Title, err)
	}
	if o.Context == "" {
		o.Context = current
	}
	return &Place{
		Namespace: o.Namespace, title: o.Title, context: o.Context, contextFlag: o.ContextFlag,
		server: strings.TrimSuffix(config.Host, "/"), core: core,
	}, nil
}

// String names the cluster as people would look for it.
func (p *Place) String() string {
	if p.context == "" {
		return p.title
	}
	return fmt.Sprintf("%s (context %s)", p.title, p.context)
}

// Secret names a Secret of the place as people would look for it.
func (p *Place) Secret(name string) string {
	return fmt.Sprintf("Secret %s/%s on %s", p.Namespace, name, p)
}

// SameCluster reports whether both are on one cluster, as far as their kubeconfigs tell.
func (p *Place) SameCluster(other *Place) bool { return p.server == other.server }

// Same reports whether both are one place, as far as their kubeconfigs tell.
func (p *Place) Same(other *Place) bool {
	return p.SameCluster(other) && p.Namespace == other.Namespace
}

// Get returns a Secret, nil if there is none.
func (p *Place) Get(ctx context.Context, name string) (*corev1.Secret, error) {
	secret, err := p.core.Secrets(p.Namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("%s: %w", p.Secret(name), p.explain(err))
	default:
		return secret, nil
	}
}

// List returns the Secrets that a label selector selects.
func (p *Place) List(ctx context.Context, selector string) ([]corev1.Secret, error) {
	list, err := p.core.Secrets(p.Namespace).List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return nil, fmt.Errorf("%s: list Secrets in namespace %s: %w", p, p.Namespace, p.explain(err))
	}
	return list.Items, nil
}

// HasNamespace reports whether the cluster has a namespace. Whoever may not know that is told that it has.
func (p *Place) HasNamespace(ctx context.Context, name string) (bool, error) {
	_, err := p.core.Namespaces().Get(ctx, name, metav1.GetOptions{})
	switch {
	case err == nil, apierrors.IsForbidden(err):
		return true, nil
	case apierrors.IsNotFound(err):
		return false, nil
	default:
		return false, fmt.Errorf("namespace %s on %s: %w", name, p, p.explain(err))
	}
}

// Namespaces is HasNamespace for many names: it asks once, and returns a function that knows the answers.
func (p *Place) Namespaces(ctx context.Context) (func(context.Context, string) (bool, error), error) {
	list, err := p.core.Namespaces().List(ctx, metav1.ListOptions{})
	if apierrors.IsForbidden(err) {
		return p.HasNamespace, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%s: list namespaces: %w", p, p.explain(err))
	}
	all := make(map[string]bool, len(list.Items))
	for i := range list.Items {
		all[list.Items[i].Name] = true
	}
	return func(_ context.Context, name string) (bool, error) { return all[name], nil }, nil
}

// In returns another namespace of the same cluster.
func (p *Place) In(namespace string) *Place {
	other := *p
	other.Namespace = namespace
	return &other
}

// explain says what to do about an error of the API server, where it does not say so itself.
func (p *Place) explain(err error) error {
	unanswered := new(url.Error)
	status := apierrors.APIStatus(nil)
	switch {
	case err == nil || errors.Is(err, context.Canceled):
		return err
	case errors.As(err, &unanswered):
		return fmt.Errorf("the API server at %s cannot be asked: %w: is this the right cluster? %s chooses another", p.server, unanswered.Err, p.contextFlag)
	case apierrors.IsUnauthorized(err):
		return fmt.Errorf("%w: the API server does not know who asks: log in to that cluster again, or choose another by %s", err, p.contextFlag)
	case apierrors.IsForbidden(err):
		return fmt.Errorf("%w: ask for that right, or choose a context that has it by %s", err, p.contextFlag)
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
		return fmt.Errorf("somebody else wrote it at the same time: try again (%w)", err)
	case errors.As(err, &status) && status.Status().Details != nil && status.Status().Details.Kind == "namespaces":
		return fmt.Errorf("%w: create it with: kubectl create namespace %s%s", err, p.Namespace, p.kubectlContext())
	default:
		return err
	}
}

// kubectlContext is what has kubectl use the same context.
func (p *Place) kubectlContext() string {
	if p.context == "" {
		return ""
	}
	return " --context " + p.context
}

// Command writes a command of kubectl's at this place, for people to run.
func (p *Place) Command(format string, args ...any) string {
	return "kubectl " + fmt.Sprintf(format, args...) + p.kubectlContext()
}
