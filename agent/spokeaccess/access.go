// Package spokeaccess gives the hub access to the spoke's own services, as far as the spoke's policy goes: its API server, and
// what Argo CD keeps in Redis.
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
	// headerTimeout is how long the hub may take to say what it asks for.
	headerTimeout = 10 * time.Second
	// idleTimeout is how long a connection is kept for the next request. The hub gives idle ones up sooner: one that is
	// closed under a request could not be told from one that was lost after it.
	idleTimeout = 5 * time.Minute
	// drain is how long requests may take to end when the agent does.
	drain = 5 * time.Second
)

// Options configure an Access.
type Options struct {
	Cluster kube.Cluster
	// Namespace is that of Argo CD and of the agent.
	Namespace string
	// PolicyName is the name of the ConfigMap with what the hub may do.
	PolicyName string
	// Redis is Argo CD's on the spoke. Run runs its Roots.
	Redis redis.Access
	// KeyPrefix is what all of Argo CD's keys begin with, usually nothing.
	KeyPrefix string
	// Exists says whether the spoke has an application, by its instance name.
	Exists func(application string) bool
	// Shown, if set, returns where the hub shows the spoke's applications.
	Shown      func() argocd.Move
	Registerer prometheus.Registerer
	Logger     *slog.Logger
}

// Access serves the hub. Its Tunnel takes up what the hub dials. A nil Access serves nobody.
type Access struct {
	roots  *certs.Source // for Redis; nil if there are none
	tunnel *tunnel.Server
	kube   *tunnel.Listener
	redis  *tunnel.Listener
	policy *policy.Policy
	trees  *ownership.Trees
	client *goredis.Client
	live   *apiproxy.Handler
	shelf  *redis.Server
	logger *slog.Logger
}

// New returns what gives access once Run runs.
func New(o Options) (*Access, error) {
	a := &Access{
		roots: o.Redis.Roots,
		kube:  tunnel.NewListener(tunnel.Kube), redis: tunnel.NewListener(tunnel.Redis), client: o.Redis.Client(),
		logger: logging.Component(o.Logger, "access"),
	}
	a.tunnel = tunnel.NewServer(a.logger, a.kube, a.redis)
	var err error
	if a.trees, err = ownership.New(ownership.Options{
		Redis: a.client, KeyPrefix: o.KeyPrefix, Config: o.Cluster.Config, ConfigMaps: o.Cluster.Client.CoreV1(),
		Namespace: o.Namespace, Exists: o.Exists, Logger: a.logger,
	}); err != nil {
		return nil, errors.Join(err, a.client.Close())
	}
	a.policy = policy.New(policy.Options{
		Client: o.Cluster.Client.CoreV1(), Namespace: o.Namespace, Name: o.PolicyName, Applications: a.trees,
		Registerer: o.Registerer, Logger: a.logger,
	})
	if a.live, err = apiproxy.New(apiproxy.Options{
		Config: o.Cluster.Config, Policy: a.policy, Registerer: o.Registerer, Logger: logging.Component(o.Logger, "audit"),
	}); err != nil {
		return nil, errors.Join(err, a.client.Close())
	}
	a.shelf = redis.New(redis.Options{
		Access: o.Redis, KeyPrefix: o.KeyPrefix, Namespace: o.Namespace, Shown: o.Shown, Registerer: o.Registerer, Logger: a.logger,
	})
	return a, nil
}

// Tunnel returns what takes up what the hub dials.
func (a *Access) Tunnel() *tunnel.Server {
	if a == nil {
		return nil
	}
	return a.tunnel
}

// Run serves the hub until the context ends, and returns when nobody is served any more.
func (a *Access) Run(ctx context.Context) error {
	if a == nil {
		return nil
	}
	defer func() { _ = a.client.Close() }() // nobody uses it any more
	group, ctx := errgroup.WithContext(ctx)
	if a.roots != nil {
		group.Go(func() error { return a.roots.Run(ctx) })
	}
	group.Go(func() error { a.policy.Run(ctx); return nil })
	group.Go(func() error { a.trees.Run(ctx); return nil })
	group.Go(func() error { return a.shelf.Serve(ctx, a.redis) })
	group.Go(func() error { return a.serve(ctx) })
	group.Go(func() error {
		<-ctx.Done()
		return a.redis.Close()
	})
	return group.Wait()
}

// serve serves the API server.
func (a *Access) serve(ctx context.Context) error {
	defer a.live.Close()
	server := &http.Server{
		Handler: a.live, ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: apihttp.MaxHeaderBytes,
		ConnContext: lasting, ErrorLog: slog.NewLogLogger(a.logger.Handler(), slog.LevelDebug),
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = server.Serve(a.kube) // it ends when it is shut down, and for no other reason
	}()
	<-ctx.Done()
	soon, cancel := context.WithTimeout(context.WithoutCancel(ctx), drain)
	defer cancel()
	err := server.Shutdown(soon)
	if errors.Is(err, context.DeadlineExceeded) {
		err = server.Close() // those who watch do not end by themselves
	}
	<-ended
	return err
}

// lasting ends a conversation's requests with it. The server sees to that only as long as it reads itself, which it does not
// for a terminal: one would go on although the connection to the principal is lost, if nothing was written to it.
func lasting(ctx context.Context, conn net.Conn) context.Context {
	conversation, ok := conn.(*tunnel.Conn)
	if !ok {
		return ctx
	}
	ctx, end := context.WithCancel(ctx)
	context.AfterFunc(conversation.Context(), end)
	return ctx
}
