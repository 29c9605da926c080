package program

import (
	"context"
	"errors"
	"net/http"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/logging"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/ops"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/settings"
)

// Operations are what an operator decides about looking at any program: its log, its health, its metrics, its profiles.
type Operations struct {
	Log logging.Options

	metrics, health, profiles int
	metricsHost, healthHost   string
	metricsTLS                ops.TLSFiles
	authorized                bool
	authorize                 func(next http.Handler) http.Handler
}

// Declare declares the settings. Their environment variables begin with the prefix, such as "ARGOCD_AGENT"; the ports are
// those of metrics and of health when nothing else is set.
func (o *Operations) Declare(set *settings.Set, prefix string, metrics, health int) {
	set.Int(&o.metrics, "metrics-port", prefix+"_METRICS_PORT", metrics, "port of /metrics, 0 for none", settings.PortOrOff)
	set.Int(&o.health, "healthz-port", prefix+"_HEALTH_CHECK_PORT", health, "port of /healthz and /readyz, 0 for none", settings.PortOrOff)
	set.String(&o.metricsHost, "metrics-host", prefix+"_METRICS_HOST", "", "address to listen on for /metrics; all addresses if empty", settings.Host)
	set.String(&o.healthHost, "healthz-host", prefix+"_HEALTH_CHECK_HOST", "", "address to listen on for /healthz and /readyz; all addresses if empty", settings.Host)
	set.String(&o.metricsTLS.Cert, "metrics-tls-cert", prefix+"_METRICS_TLS_CERT_PATH", "", "file of the certificate of /metrics; no TLS if empty", settings.File)
	set.String(&o.metricsTLS.Key, "metrics-tls-key", prefix+"_METRICS_TLS_KEY_PATH", "", "file of the key of that certificate", settings.File)
	set.String(&o.metricsTLS.ClientCA, "metrics-client-ca-path", prefix+"_METRICS_CLIENT_CA_PATH", "",
		"file of the CA that certificates of clients of /metrics must come from; none are asked for if empty", settings.File)
	set.Rule(func() error {
		if (o.metricsTLS.Cert == "") != (o.metricsTLS.Key == "") {
			return errors.New("set both or neither")
		}
		if o.metricsTLS.ClientCA != "" && o.metricsTLS.Cert == "" {
			return errors.New("certificates of clients need TLS: set --metrics-tls-cert and --metrics-tls-key")
		}
		return nil
	}, "metrics-tls-cert", "metrics-tls-key", "metrics-client-ca-path")
	set.Int(&o.profiles, "pprof-port", prefix+"_PPROF_PORT", 0, "port on 127.0.0.1 of /debug/pprof/, 0 for none", settings.PortOrOff)
	set.Strings(&o.Log.Levels, "log-level", prefix+"_LOG_LEVEL", []string{"info"},
		"[component=]level: debug, info, warn or error", logging.CheckLevels)
	set.String(&o.Log.Format, "log-format", prefix+"_LOG_FORMAT", logging.Text, "text or json",
		settings.OneOf(logging.Text, logging.JSON))
}

// DeclareAuthorization declares who gets /metrics, for programs that have a cluster to ask.
func (o *Operations) DeclareAuthorization(set *settings.Set, prefix string) {
	set.Bool(&o.authorized, "metrics-authorization", prefix+"_METRICS_AUTHORIZATION", false,
		"give /metrics only to bearer tokens to which the API server allows it (TokenReview, SubjectAccessReview)")
	set.Rule(func() error {
		if o.authorized && o.metricsTLS.Cert == "" {
			return errors.New("bearer tokens need TLS: set --metrics-tls-cert and --metrics-tls-key")
		}
		return nil
	}, "metrics-authorization", "metrics-tls-cert")
}

// Authorize has a filter decide who gets /metrics, if that is to be decided.
func (o *Operations) Authorize(filter func(next http.Handler) http.Handler) {
	if o.authorized {
		o.authorize = filter
	}
}

// Serve opens the ports of health, metrics and profiles. The checks decide whether the program is ready.
func (o *Operations) Serve(ctx context.Context, base Base, checks ...ops.Check) (*ops.Server, error) {
	return ops.New(ctx, ops.Options{
		Health: ops.Port("--healthz-port", o.healthHost, o.health), Metrics: ops.Port("--metrics-port", o.metricsHost, o.metrics),
		TLS: o.metricsTLS, Filter: o.authorize,
		Profiles: ops.LoopbackPort("--pprof-port", o.profiles), Registry: base.Registry, Libraries: base.Libraries, Views: base.Views, Logger: base.Logger, Checks: checks,
	})
}
