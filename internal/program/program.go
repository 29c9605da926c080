// Package program is what the programs of this project begin with: a logger, a Kubernetes client, a registry of metrics.
// What each of them is made of is its own business.
package program

import (
	"context"
	"fmt"
	"io"
	"log/slog"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/kube"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/logging"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/ops"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/version"
)

// Options are what an operator decides about any program.
type Options struct {
	// Name is what the program is called in logs and by the API server, such as "argocd-agent-principal".
	Name string
	Log  logging.Options
	Kube kube.Options
	// Output takes the log.
	Output io.Writer
}

// Base is what a program stands on.
type Base struct {
	Logger   *slog.Logger
	Config   *rest.Config // of its API server
	Client   kubernetes.Interface
	Registry *prometheus.Registry
}

// Begin makes the base of a program, and says in the log which build runs. The context that it returns has the Kubernetes
// libraries log like everything else.
func Begin(ctx context.Context, o Options) (context.Context, Base, error) {
	o.Log.Output = o.Output
	logger, err := logging.New(o.Log)
	if err != nil {
		return nil, Base{}, err
	}
	logger.Info("Start", "program", o.Name, "version", version.Version(), "revision", version.Revision())
	o.Kube.UserAgent = o.Name + "/" + version.Version()
	config, err := kube.Config(o.Kube)
	if err != nil {
		return nil, Base{}, err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, Base{}, fmt.Errorf("kubernetes client: %w", err)
	}
	ctx = klog.NewContext(ctx, logr.FromSlogHandler(logging.Component(logger, "kubernetes").Handler()))
	return ctx, Base{
		Logger: logger, Config: config, Client: client, Registry: ops.NewRegistry(version.Version(), version.Revision()),
	}, nil
}
