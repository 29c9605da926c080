// Package cluster is the command-line tool's client for one namespace of a cluster, the hub or a spoke. It creates Secrets,
// and knows when one may be overwritten. What is in them is the business of other packages.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typed "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/kube"
)

// requestTimeout is how long an API server may take for one request.
const requestTimeout = 30 * time.Second

// Options say which cluster, and which namespace.
type Options struct {
	// Title is what messages call the cluster: "the hub", "the agent's cluster".
	Title string
	// Kubeconfig and Context are as in package kube; Namespace is in that cluster.
	Kubeconfig, Context, Namespace string
	// ContextFlag is the flag that sets Context, for messages.
	ContextFlag string
}

// Client is a client for one namespace of a cluster.
type Client struct {
	Namespace string

	title, context, server string
	contextFlag            string
	core                   typed.CoreV1Interface
	config                 *rest.Config
	dryRun                 []string  // as in metav1.CreateOptions
	out                    io.Writer // that takes Secrets in place of an API server; nil for none
}

// New returns a client. It sends no request yet.
func New(o Options) (*Client, error) {
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
	return &Client{
		Namespace: o.Namespace, title: o.Title, context: o.Context, contextFlag: o.ContextFlag, config: config,
		server: strings.TrimSuffix(config.Host, "/"), core: core,
	}, nil
}

// InPod reports whether a client that is given no context is one of the cluster whose Pod this program runs in.
func InPod(kubeconfig string) bool {
	all, _, err := kube.Contexts(kubeconfig)
	if err != nil || len(all) > 0 {
		return false
	}
	_, err = rest.InClusterConfig()
	return err == nil
}

// String returns the cluster's title and context.
func (c *Client) String() string {
	if c.context == "" {
		return c.title
	}
	return fmt.Sprintf("%s (context %s)", c.title, c.context)
}

// ContextFlag returns the flag that chooses another context of the cluster.
func (c *Client) ContextFlag() string { return c.contextFlag }

// Secret returns a Secret's namespace, name and cluster, for messages.
func (c *Client) Secret(name string) string {
	return fmt.Sprintf("Secret %s/%s on %s", c.Namespace, name, c)
}

// SameCluster reports whether both are on one cluster, as far as their kubeconfigs tell.
func (c *Client) SameCluster(other *Client) bool { return c.server == other.server }

// Same reports whether both are one namespace of one cluster, as far as their kubeconfigs tell.
func (c *Client) Same(other *Client) bool {
	return c.SameCluster(other) && c.Namespace == other.Namespace
}

// Get returns a Secret, nil if there is none.
func (c *Client) Get(ctx context.Context, name string) (*corev1.Secret, error) {
	secret, err := c.core.Secrets(c.Namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("%s: %w", c.Secret(name), c.explain(err))
	default:
		return secret, nil
	}
}

// List returns the Secrets that a label selector selects.
func (c *Client) List(ctx context.Context, selector string) ([]corev1.Secret, error) {
	list, err := c.core.Secrets(c.Namespace).List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return nil, fmt.Errorf("%s: list Secrets in namespace %s: %w", c, c.Namespace, c.explain(err))
	}
	return list.Items, nil
}

// HasNamespace reports whether the cluster has a namespace. It assumes so if the user may not get namespaces.
func (c *Client) HasNamespace(ctx context.Context, name string) (bool, error) {
	_, err := c.core.Namespaces().Get(ctx, name, metav1.GetOptions{})
	switch {
	case err == nil, apierrors.IsForbidden(err):
		return true, nil
	case apierrors.IsNotFound(err):
		return false, nil
	default:
		return false, fmt.Errorf("namespace %s on %s: %w", name, c, c.explain(err))
	}
}

// CreateNamespace creates the client's namespace, unless it is there.
func (c *Client) CreateNamespace(ctx context.Context) error {
	has, err := c.HasNamespace(ctx, c.Namespace)
	if err != nil || has {
		return err
	}
	_, err = c.core.Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: c.Namespace}}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create namespace %s on %s: %w", c.Namespace, c, c.explain(err))
	}
	return nil
}

// Namespaces is HasNamespace for many names, by one request.
func (c *Client) Namespaces(ctx context.Context) (func(context.Context, string) (bool, error), error) {
	list, err := c.core.Namespaces().List(ctx, metav1.ListOptions{})
	if apierrors.IsForbidden(err) {
		return c.HasNamespace, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%s: list namespaces: %w", c, c.explain(err))
	}
	all := make(map[string]bool, len(list.Items))
	for i := range list.Items {
		all[list.Items[i].Name] = true
	}
	return func(_ context.Context, name string) (bool, error) { return all[name], nil }, nil
}

// In returns a client for another namespace of the same cluster.
func (c *Client) In(namespace string) *Client {
	other := *c
	other.Namespace = namespace
	return &other
}

// explain adds what to do about an error of the API server.
func (c *Client) explain(err error) error {
	unanswered := new(url.Error)
	status := apierrors.APIStatus(nil)
	switch {
	case err == nil || errors.Is(err, context.Canceled):
		return err
	case errors.As(err, &unanswered):
		return fmt.Errorf("the API server at %s cannot be asked: %w: is this the right cluster? %s chooses another", c.server, unanswered.Err, c.contextFlag)
	case apierrors.IsUnauthorized(err):
		return fmt.Errorf("%w: the API server does not know who asks: log in to that cluster again, or choose another by %s", err, c.contextFlag)
	case apierrors.IsForbidden(err):
		return fmt.Errorf("%w: ask for that right, or choose a context that has it by %s", err, c.contextFlag)
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
		return fmt.Errorf("another client wrote it at the same time: try again (%w)", err)
	case errors.As(err, &status) && status.Status().Details != nil && status.Status().Details.Kind == "namespaces":
		return fmt.Errorf("%w: create it with: kubectl create namespace %s%s", err, c.Namespace, c.kubectlContext())
	default:
		return err
	}
}

// kubectlContext returns kubectl's flag for the same context.
func (c *Client) kubectlContext() string {
	if c.context == "" {
		return ""
	}
	return " --context " + c.context
}

// Command returns a kubectl command for this cluster, for the user to run.
func (c *Client) Command(format string, args ...any) string {
	return "kubectl " + fmt.Sprintf(format, args...) + c.kubectlContext()
}
