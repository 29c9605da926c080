package program

import (
	"context"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/logging"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/ops"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/settings"
)

// Operations are what an operator decides about looking at any program: its log, its health, its metrics, its profiles.
type Operations struct {
	Log logging.Options

	metrics, health, profiles int
}

// Declare declares the settings. Their environment variables begin with the prefix, such as "ARGOCD_AGENT"; the ports are
// those of metrics and of health when nothing else is set.
func (o *Operations) Declare(set *settings.Set, prefix string, metrics, health int) {
	set.Int(&o.metrics, "metrics-port", prefix+"_METRICS_PORT", metrics, "port of /metrics, 0 for none", settings.PortOrOff)
	set.Int(&o.health, "healthz-port", prefix+"_HEALTH_CHECK_PORT", health, "port of /healthz and /readyz, 0 for none", settings.PortOrOff)
	set.Int(&o.profiles, "pprof-port", prefix+"_PPROF_PORT", 0, "port on 127.0.0.1 of /debug/pprof/, 0 for none", settings.PortOrOff)
	set.Strings(&o.Log.Levels, "log-level", prefix+"_LOG_LEVEL", []string{"info"},
		"[component=]level: debug, info, warn or error", logging.CheckLevels)
	set.String(&o.Log.Format, "log-format", prefix+"_LOG_FORMAT", logging.Text, "text or json",
		settings.OneOf(logging.Text, logging.JSON))
}

// Serve opens the ports of health, metrics and profiles. The checks decide whether the program is ready.
func (o *Operations) Serve(ctx context.Context, base Base, checks ...ops.Check) (*ops.Server, error) {
	return ops.New(ctx, ops.Options{
		Health: ops.Port("--healthz-port", o.health), Metrics: ops.Port("--metrics-port", o.metrics),
		Profiles: ops.LoopbackPort("--pprof-port", o.profiles), Registry: base.Registry, Libraries: base.Libraries, Logger: base.Logger, Checks: checks,
	})
}
