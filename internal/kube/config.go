// Package kube makes Kubernetes clients.
package kube

import (
	"errors"
	"fmt"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Options say which cluster to talk to, and as whom.
type Options struct {
	// Kubeconfig is the path of a kubeconfig file. Without it the pod's service account is used or, outside of a pod, what
	// kubectl would use.
	Kubeconfig string
	// Context is the context in it, if not its current one.
	Context string
	// UserAgent tells the API server which program this is.
	UserAgent string
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
	config.UserAgent = o.UserAgent
	// With every write of an application that has Argo CD's finalizer the API server warns of that finalizer's name.
	config.WarningHandler = rest.NoWarnings{}
	return config, nil
}
