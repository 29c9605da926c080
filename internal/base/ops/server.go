// Package ops is what an operator looks at: whether the program lives, whether it is ready and if not why, its metrics,
// and on request its profiles. It knows nothing of what the program does: checks and collectors are handed to it.
//
// Every endpoint has a port and a mux of its own, so that no one who may scrape metrics can also take a profile.
package ops

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/logging"
)

const (
	headerTimeout = 5 * time.Second
	idleTimeout   = time.Minute
	drainTimeout  = 5 * time.Second
)

// Endpoint is where one of the servers listens.
type Endpoint struct {
	// Address is host:port; an empty host is every interface, an empty Address turns the server off.
	Address string
	// Flag is the name of the setting behind it, "--healthz-port", for the error when the port cannot be had.
	Flag string
}

// Port is the endpoint at that port of a host, on every interface if that is empty; port 0 turns it off.
func Port(flag, host string, port int) Endpoint {
	return endpoint(flag, host, port)
}

// LoopbackPort is the endpoint at that port on 127.0.0.1 only; port 0 turns it off.
func LoopbackPort(flag string, port int) Endpoint {
	return endpoint(flag, "127.0.0.1", port)
}

func endpoint(flag, host string, port int) Endpoint {
	if port == 0 {
		return Endpoint{Flag: flag}
	}
	return Endpoint{Flag: flag, Address: net.JoinHostPort(host, strconv.Itoa(port))}
}

// Options is what a Server is made of.
type Options struct {
	// Health serves /healthz, which answers 200 as long as the process can answer at all, and /readyz.
	Health Endpoint
	// Metrics serves /metrics.
	Metrics Endpoint
	// Profiles serves /debug/pprof/. Its address must be a loopback one: a profile shows the program's memory.
	Profiles Endpoint
	// TLS is the certificate of the server of /metrics.
	TLS TLSFiles
	// Filter, if set, decides who gets /metrics.
	Filter func(next http.Handler) http.Handler

	// Checks decide /readyz, and are named in its answer.
	Checks []Check
	// Registry holds what /metrics shows, and is needed when that is on; see NewRegistry.
	Registry *prometheus.Registry
	// Libraries hold more that /metrics shows, each under names of its own.
	Libraries []prometheus.Gatherer
	// Views are more that is served beside /metrics, to the same clients, by path.
	Views map[string]http.Handler
	// Logger takes the errors of single connections.
	Logger *slog.Logger
}

// Server serves the endpoints. New opens their ports and Run serves them.
type Server struct {
	logger  *slog.Logger
	servers []served
}

// served is one endpoint with its port open.
type served struct {
	path     string
	listener net.Listener
	handler  http.Handler
	secure   *tls.Config // nil for none
}

// New opens the ports, so that one that is taken is known before anything else starts. The Server owns them until Run
// returns; one that will not run must be closed.
func New(ctx context.Context, options Options) (*Server, error) {
	s := &Server{logger: options.Logger}
	if err := loopbackOnly(options.Profiles); err != nil {
		return nil, err
	}
	var metrics http.Handler = metricsMux(options.Registry, options.Libraries, options.Views)
	if options.Filter != nil {
		metrics = options.Filter(metrics)
	}
	err := errors.Join(
		s.open(ctx, options.Health, healthPath, healthMux(options.Checks), nil),
		s.open(ctx, options.Metrics, metricsPath, metrics, options.TLS.config()),
		s.open(ctx, options.Profiles, profilesPath, profilesMux(), nil),
	)
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// open listens at the endpoint, unless it is turned off; with TLS if that is configured.
func (s *Server) open(ctx context.Context, at Endpoint, path string, handler http.Handler, secure *tls.Config) error {
	if at.Address == "" {
		return nil
	}
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", at.Address)
	if err != nil {
		return fmt.Errorf("%s: %w: choose another port with %s", path, err, at.Flag)
	}
	s.servers = append(s.servers, served{path: path, listener: listener, handler: handler, secure: secure})
	return nil
}

// loopbackOnly refuses an address that another machine could reach.
func loopbackOnly(at Endpoint) error {
	if at.Address == "" {
		return nil
	}
	host, _, err := net.SplitHostPort(at.Address)
	if err != nil {
		return fmt.Errorf("%s: %w", at.Flag, err)
	}
	if ip := net.ParseIP(host); ip == nil || !ip.IsLoopback() {
		return fmt.Errorf("%s: address %q: profiles are served on a loopback address only", at.Flag, at.Address)
	}
	return nil
}

// Run serves until the context ends, and then lets open requests finish for a few seconds. A server that is to answer
// while the rest of the program drains needs a context that outlives it.
func (s *Server) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { // with every endpoint turned off it still runs until ctx ends
		<-ctx.Done()
		return nil
	})
	for _, one := range s.servers {
		server := &http.Server{
			Handler:           one.handler,
			ReadHeaderTimeout: headerTimeout,
			IdleTimeout:       idleTimeout,
			TLSConfig:         one.secure,
			ErrorLog:          slog.NewLogLogger(logging.Limited(s.logger).Handler(), slog.LevelWarn), // of failed handshakes among others
		}
		group.Go(func() error {
			serve := server.Serve
			if one.secure != nil {
				serve = func(l net.Listener) error { return server.ServeTLS(l, "", "") }
			}
			if err := serve(one.listener); !errors.Is(err, http.ErrServerClosed) {
				return fmt.Errorf("serve %s: %w", one.path, err)
			}
			return nil
		})
		group.Go(func() error {
			<-ctx.Done()
			return drain(ctx, server)
		})
	}
	return group.Wait()
}

// drain ends a server. Requests that take longer than the timeout are cut: a profile of a minute is no reason to stay.
func drain(ctx context.Context, server *http.Server) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTimeout)
	defer cancel()
	if err := server.Shutdown(ctx); errors.Is(err, context.DeadlineExceeded) {
		return server.Close()
	} else if err != nil {
		return err
	}
	return nil
}

// Close gives the ports of a Server back that has not run.
func (s *Server) Close() error {
	var problems []error
	for _, one := range s.servers {
		problems = append(problems, one.listener.Close())
	}
	return errors.Join(problems...)
}
