// Package registration makes the cluster Secrets of agents that register themselves: when such an agent connects, and the hub has none.
// It keeps those up to date, and leaves alone what people made.
package registration

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	typed "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/logging"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/argocd"
)

// How many clusters may register. Each is an object on the hub, and a cluster that Argo CD looks after: whoever gets certificates for many
// names must not fill the hub. An agent that is refused comes again by itself.
const (
	registrationsPerSecond = 20
	registrationsBurst     = 100
)

// maxNoted is of how many agents it is remembered what was left out.
const maxNoted = 10_000

// Clusters are the cluster Secrets that the hub has.
type Clusters interface {
	// Has reports whether an agent has one.
	Has(agent string) bool
	// Registered returns what is known of the one that a principal made for an agent, nil if there is none.
	Registered(agent string) *argocd.Registered
	// AllRegistered returns the agents that have such a one.
	AllRegistered() []string
	// RecordWrite takes in what the API server answered to a write.
	RecordWrite(answer *corev1.Secret) error
	// Wait waits until all are known, and reports whether that came before the end of the context.
	Wait(ctx context.Context) bool
}

// Options configure a Registrar.
type Options struct {
	// Secrets are those of Argo CD's namespace. They are created, read and updated.
	Secrets typed.SecretInterface
	// Reader follows Secrets in that namespace.
	Reader    cache.Getter
	Namespace string
	Clusters  Clusters
	// Source has the certificate that all share. If it is nil, no Secret has a key: the sidecar of Argo CD proves who it is.
	Source *Source
	// Proxy is the resource proxy's host:port, as Argo CD reaches it.
	Proxy string
	// Modes are those in which an agent may register.
	Modes []string
	Rules Rules
	// Most is how many may have registered; 0 for no limit.
	Most       int
	Registerer prometheus.Registerer
	Logger     *slog.Logger
}

// Declared is what an agent says of its cluster.
type Declared struct {
	Mode string
	Keys argocd.ClusterKeys
}

// Registrar writes cluster Secrets. Several, of several principals, may work at the same time: each write is of a version that was read.
type Registrar struct {
	options Options
	said    *operatorKeys
	queue   workqueue.TypedRateLimitingInterface[string] // agents whose Secrets may be out of date
	logger  *slog.Logger                                 // for what agents cause
	results *prometheus.CounterVec
	limit   *rate.Limiter

	mu      sync.Mutex
	pending map[string]int    // registrations under way, by agent. Guarded by mu
	leftOut map[string]string // what was logged last, by agent. Guarded by mu
}

// New returns a Registrar that does nothing until Run runs.
func New(o Options) *Registrar {
	r := &Registrar{
		options: o, said: newOperatorKeys(o.Reader, o.Namespace, o.Logger), logger: logging.Limited(o.Logger),
		queue: workqueue.NewTypedRateLimitingQueueWithConfig(
			workqueue.NewTypedItemExponentialFailureRateLimiter[string](firstRetry, lastRetry),
			workqueue.TypedRateLimitingQueueConfig[string]{Name: "self-registration"},
		),
		limit: rate.NewLimiter(registrationsPerSecond, registrationsBurst), leftOut: make(map[string]string), pending: make(map[string]int),
		results: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "argocd_principal_self_registrations_total", Help: "Cluster Secrets of agents that register themselves, by what became of them.",
		}, []string{"result"}),
	}
	for _, result := range []string{created, updated, refused, failed} {
		r.results.WithLabelValues(result)
	}
	o.Registerer.MustRegister(r.results, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "argocd_principal_self_registered_clusters", Help: "Cluster Secrets on the hub that principals made.",
	}, func() float64 { return float64(len(o.Clusters.AllRegistered())) }))
	return r
}

// Results of a registration.
const (
	created = "created"
	updated = "updated"
	refused = "refused"
	failed  = "failed"
)

// Register makes the cluster Secret of an agent that is connecting, unless it has one, or brings up to date the one that a principal
// made. A status as the error is the agent's fault, or of a limit; any other is the hub's.
func (r *Registrar) Register(ctx context.Context, agent string, says Declared) error {
	known := r.options.Clusters.Registered(agent)
	if known == nil && r.options.Clusters.Has(agent) {
		return nil // by people, who look after it
	}
	err := r.register(ctx, agent, says, known)
	switch _, isRefusal := status.FromError(err); {
	case err == nil:
	case isRefusal:
		r.results.WithLabelValues(refused).Inc()
	default:
		r.results.WithLabelValues(failed).Inc()
		err = fmt.Errorf("register the cluster of agent %s: %w", agent, err)
	}
	return err
}

func (r *Registrar) register(ctx context.Context, agent string, says Declared, known *argocd.Registered) error {
	mode := says.Mode
	if !slices.Contains(r.options.Modes, mode) {
		if known == nil {
			return status.Errorf(codes.FailedPrecondition, "mode: the agent's is %q, and by itself an agent may register as %s only: set --agent-mode, "+
				"or on the principal --self-registration-modes, or create its cluster Secret with: argocd-agentctl agent create %s --mode %s",
				mode, strings.Join(r.options.Modes, " or "), agent, mode)
		}
		mode = "" // what the hub says of an agent that it knows does not change by that
	}
	wanted, err := r.wanted(agent)
	if err != nil {
		return err
	}
	keys, leftOut := r.options.Rules.filter(says.Keys)
	r.noteLeftOut(agent, leftOut)
	keys = keys.With(r.said.of(agent))
	wanted.Mode, wanted.Keys = mode, &keys
	if known == nil {
		return r.create(ctx, wanted)
	}
	return r.refresh(ctx, known, wanted)
}

// wanted returns what the Secret of an agent is to hold, besides what the agent says.
func (r *Registrar) wanted(agent string) (argocd.Registration, error) {
	cluster := argocd.Cluster{Agent: agent, Name: agent}
	if r.options.Source == nil {
		cluster.Server = argocd.ClusterServerBySidecar(r.options.Proxy, agent)
		return argocd.Registration{Cluster: cluster}, nil
	}
	access, err := r.options.Source.access()
	if err != nil {
		return argocd.Registration{}, err
	}
	cluster.Server, cluster.Access.TLS = argocd.ClusterServerByPath(r.options.Proxy, agent), access
	return argocd.Registration{Cluster: cluster}, nil
}

// noteLeftOut logs what of an agent's labels and annotations does not count, once until that changes.
func (r *Registrar) noteLeftOut(agent string, leftOut []string) {
	const shown = 10
	text := strings.Join(leftOut[:min(len(leftOut), shown)], "; ")
	r.mu.Lock()
	same := r.leftOut[agent] == text
	if len(r.leftOut) >= maxNoted {
		clear(r.leftOut)
	}
	if r.leftOut[agent] = text; text == "" {
		delete(r.leftOut, agent)
	}
	r.mu.Unlock()
	if !same && text != "" {
		r.logger.Warn("Left out labels or annotations that an agent wants for its cluster", "agent", agent, "left_out", len(leftOut), "reasons", text)
	}
}

// admit says whether the cluster of one more agent may register, and counts it as under way until done is called.
func (r *Registrar) admit(agent string) (done func(), err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if most := r.options.Most; most > 0 && r.count() >= most {
		return nil, status.Errorf(codes.ResourceExhausted, "%d clusters have registered themselves, which is the limit: raise the principal's "+
			"--max-self-registered-clusters, or delete those that nobody needs with: argocd-agentctl agent delete", most)
	}
	if !r.limit.Allow() {
		return nil, status.Error(codes.ResourceExhausted, "too many clusters register at the same time: the agent tries again by itself")
	}
	r.pending[agent]++
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.pending[agent]--; r.pending[agent] == 0 {
			delete(r.pending, agent)
		}
	}, nil
}

// count returns how many clusters have registered, or are about to. r.mu is held.
func (r *Registrar) count() int {
	all := r.options.Clusters.AllRegistered()
	n := len(all) + len(r.pending)
	for _, agent := range all {
		if r.pending[agent] > 0 { // it has just been written
			n--
		}
	}
	return n
}
