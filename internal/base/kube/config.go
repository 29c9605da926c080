// Package kube makes Kubernetes clients, and asks API servers so that what they say can be believed.
package kube

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"

	"github.com/go-logr/logr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/logging"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/version"
)

// Options say which cluster to talk to, and as whom.
type Options struct {
	// Kubeconfig is the path of a kubeconfig file. Without it the pod's service account is used or, outside of a pod, what
	// kubectl would use.
	Kubeconfig string
	// Context is the context in it, if not its current one.
	Context string
	// Program tells the API server which program this is.
	Program string
}

// Cluster is a program's access to its cluster.
type Cluster struct {
	Config *rest.Config
	Client kubernetes.Interface
}

// Open gives a program access to its cluster. The context that it returns has the Kubernetes libraries log like everything
// else. Nothing is asked of the API server yet.
func Open(ctx context.Context, o Options, logger *slog.Logger) (context.Context, Cluster, error) {
	config, err := Config(o)
	if err != nil {
		return nil, Cluster{}, err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, Cluster{}, fmt.Errorf("kubernetes client: %w", err)
	}
	ctx = klog.NewContext(ctx, logr.FromSlogHandler(logging.Component(logger, "kubernetes").Handler()))
	return ctx, Cluster{Config: config, Client: client}, nil
}

// Contexts returns the contexts of a kubeconfig file, or of what kubectl would use if the path is empty: all that there are,
// sorted, and the current one, empty if there is none.
func Contexts(kubeconfig string) (all []string, current string, err error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = kubeconfig
	config, err := rules.Load()
	if err != nil {
		return nil, "", fmt.Errorf("kubeconfig: %w", err)
	}
	return slices.Sorted(maps.Keys(config.Contexts)), config.CurrentContext, nil
}

// Config returns the configuration of a client without rate limits of its own: the API server's priority and fairness
// knows better when to wait.
func Config(o Options) (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = o.Kubeconfig
	overrides := &clientcmd.ConfigOverrides{CurrentContext: o.Context}
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides).ClientConfig()
	switch {
	case clientcmd.IsEmptyConfig(err):
		return nil, errors.New("kubeconfig: there is none: set --kubeconfig, or run in a pod with a service account")
	case err != nil:
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	config.QPS = -1
	config.UserAgent = o.Program + "/" + version.Version()
	// With every write of an application that has Argo CD's finalizer the API server warns of that finalizer's name.
	config.WarningHandler = rest.NoWarnings{}
	return config, nil
}
