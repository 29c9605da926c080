// Package program is what the programs of this project begin with: a logger and a registry of metrics. What each of them
// is made of is its own business.
package program

import (
	"io"
	"log/slog"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/logging"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/ops"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/version"
)

// Options are what an operator decides about any program.
type Options struct {
	// Name is what the program is called in logs and by the API server, such as "argocd-agent-principal".
	Name string
	Log  logging.Options
	// Output takes the log.
	Output io.Writer
}

// Base is what a program stands on.
type Base struct {
	Logger   *slog.Logger
	Registry *prometheus.Registry
	// Libraries gather the metrics of libraries that have registries of their own.
	Libraries []prometheus.Gatherer
	// Views are more that is served beside /metrics, to the same clients, by path.
	Views map[string]http.Handler
}

// Begin makes the base of a program, and says in the log which build runs.
func Begin(o Options) (Base, error) {
	o.Log.Output = o.Output
	logger, err := logging.New(o.Log)
	if err != nil {
		return Base{}, err
	}
	logger.Info("Starting", "program", o.Name, "version", version.Version(), "revision", version.Revision())
	return Base{Logger: logger, Registry: ops.NewRegistry(version.Version(), version.Revision())}, nil
}
