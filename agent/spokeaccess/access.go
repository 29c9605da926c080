// Package spokeaccess gives the hub access to the spoke's API server, as far as the spoke's policy allows, and to what Argo
// CD's UI reads in the spoke's Redis.
package spokeaccess

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	goredis "github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/agent/apiproxy"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/agent/ownership"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/agent/policy"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/agent/redis"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/kube"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/logging"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/certs"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/argocd"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/apihttp"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/tunnel"
)

const (
	// headerTimeout is how long the hub may take to send the headers of a request.
	headerTimeout = 10 * time.Second
	// idleTimeout is how long an idle connection is kept. kubeproxy closes its own sooner: if the agent closed one while a
	// request is on its way, kubeproxy could not tell whether the agent had received the request.
	idleTimeout = 5 * time.Minute
	// drainTimeout is how long open requests may take to end at shutdown.
	drainTimeout = 5 * time.Second
)

// Options configure an Access.
type Options struct {
	Cluster kube.Cluster
	// Namespace is that of Argo CD and of the agent.
	Namespace string
	// PolicyName is the name of the policy's ConfigMap.
	PolicyName string
	// Redis is how to reach the Redis of the spoke's Argo CD. Run runs its Roots.
	Redis redis.Access
	// KeyPrefix begins all of Argo CD's keys. It is usually empty.
	KeyPrefix string
	// Shared reports whether the spoke shares an Application of that instance name with the hub.
	Shared func(application string) bool
	// Unshared and Reshared give a value after Shared has come to say no, or yes, of an Application that was there before.
	Unshared, Reshared <-chan struct{}
	// ToHub, if set, maps the spoke's namespace to the hub's.
	ToHub      func() argocd.Move
	Registerer prometheus.Registerer
	Logger     *slog.Logger
}

// Access serves the hub. Its Tunnel accepts the hub's tunnel connections. A nil Access serves nothing.
type Access struct {
	roots       *certs.Source // for Redis; nil if there are none
	tunnel      *tunnel.Server
	kube        *tunnel.Listener
	redis       *tunnel.Listener
	policy      *policy.Policy
	ownership   *ownership.Index
	redisClient *goredis.Client
	apiProxy    *apiproxy.Handler
	redisServer *redis.Server
	unshared    <-chan struct{}
	reshared    <-chan struct{}
	logger      *slog.Logger
}

// New returns an Access, which Run starts.
func New(o Options) (*Access, error) {
	a := &Access{
		roots: o.Redis.Roots,
		kube:  tunnel.NewListener(tunnel.Kube), redis: tunnel.NewListener(tunnel.Redis), redisClient: o.Redis.Client(),
		unshared: o.Unshared, reshared: o.Reshared, logger: logging.Component(o.Logger, "spoke-access"),
	}
	a.tunnel = tunnel.NewServer(a.logger, a.kube, a.redis)
	var err error
	if a.ownership, err = ownership.New(ownership.Options{
		Redis: a.redisClient, KeyPrefix: o.KeyPrefix, Config: o.Cluster.Config, ConfigMaps: o.Cluster.Client.CoreV1().RESTClient(),
		Namespace: o.Namespace, Shared: o.Shared, Logger: a.logger,
	}); err != nil {
		return nil, errors.Join(err, a.redisClient.Close())
	}
	a.policy = policy.New(policy.Options{
		Client: o.Cluster.Client.CoreV1().RESTClient(), Namespace: o.Namespace, Name: o.PolicyName, Applications: a.ownership,
		Registerer: o.Registerer, Logger: a.logger,
	})
	if a.apiProxy, err = apiproxy.New(apiproxy.Options{
		Config: o.Cluster.Config, Policy: a.policy, Registerer: o.Registerer, Logger: logging.Component(o.Logger, "audit"),
	}); err != nil {
		return nil, errors.Join(err, a.redisClient.Close())
	}
	a.redisServer = redis.New(redis.Options{
		Access: o.Redis, KeyPrefix: o.KeyPrefix, Namespace: o.Namespace, Shared: o.Shared, ToHub: o.ToHub, Registerer: o.Registerer, Logger: a.logger,
	})
	return a, nil
}

// Tunnel returns the server of the hub's tunnel connections.
func (a *Access) Tunnel() *tunnel.Server {
	if a == nil {
		return nil
	}
	return a.tunnel
}

// Run serves the hub until the context ends, and returns when all requests have ended.
func (a *Access) Run(ctx context.Context) error {
	if a == nil {
		return nil
	}
	defer func() { _ = a.redisClient.Close() }() // nothing uses it any more
	group, ctx := errgroup.WithContext(ctx)
	if a.roots != nil {
		group.Go(func() error { return a.roots.Run(ctx) })
	}
	group.Go(func() error { a.policy.Run(ctx); return nil })
	group.Go(func() error { a.ownership.Run(ctx); return nil })
	group.Go(func() error { a.followSharing(ctx); return nil })
	group.Go(func() error { return a.redisServer.Serve(ctx, a.redis) })
	group.Go(func() error { return a.serveAPI(ctx) })
	group.Go(func() error {
		<-ctx.Done()
		return a.redis.Close()
	})
	return group.Wait()
}

// followSharing has what is open end when it belongs to an Application that is no longer shared, and has the hub read again what is
// shared anew.
func (a *Access) followSharing(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-a.unshared:
			a.policy.DecideAgain()
		case <-a.reshared:
			a.redisServer.Reset()
		}
	}
}

// serveAPI serves the API server.
func (a *Access) serveAPI(ctx context.Context) error {
	defer a.apiProxy.Close()
	server := &http.Server{
		Handler: closeRetired(a.apiProxy), ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: apihttp.MaxHeaderBytes,
		ConnContext: endWithTunnel, ErrorLog: slog.NewLogLogger(a.logger.Handler(), slog.LevelDebug),
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = server.Serve(a.kube) // it returns only at shutdown
	}()
	<-ctx.Done()
	soon, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTimeout)
	defer cancel()
	err := server.Shutdown(soon)
	if errors.Is(err, context.DeadlineExceeded) {
		err = server.Close() // watches do not end by themselves
	}
	<-ended
	return err
}

// endWithTunnel ends the requests of a tunnel connection with it. The server does so only while it reads from the connection
// itself, which it does not during an upgrade: a terminal in which nothing is written would survive the loss of the
// connection to the principal.
func endWithTunnel(ctx context.Context, conn net.Conn) context.Context {
	tunnelConn, ok := conn.(*tunnel.Conn)
	if !ok {
		return ctx
	}
	ctx, end := context.WithCancel(context.WithValue(ctx, connKey{}, tunnelConn))
	context.AfterFunc(tunnelConn.Context(), end)
	return ctx
}

// connKey is the key of a request's tunnel connection in its context.
type connKey struct{}

// closeRetired has the hub send its next request over another connection once it has another way to the spoke.
func closeRetired(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if conn, ok := r.Context().Value(connKey{}).(*tunnel.Conn); ok {
			select {
			case <-conn.Retired():
				w.Header().Set("Connection", "close")
			default:
			}
		}
		next.ServeHTTP(w, r)
	})
}
