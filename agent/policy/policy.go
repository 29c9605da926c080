package policy

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/agent/ownership"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/signal"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/follow"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/apihttp"
)

const (
	// ConfigMap is the default name of the ConfigMap with the rules.
	ConfigMap = "argocd-agent-policy"
	// Key is the key of the rules in it.
	Key = "policy.yaml"
)

// Applications knows which objects belong to an Application.
type Applications interface {
	// Lookup returns the Application that an object belongs to, the zero Owner if there is none. An error means that it could
	// not find out.
	Lookup(ctx context.Context, o ownership.Object) (ownership.Owner, error)
}

// Options configure a Policy.
type Options struct {
	// Client lists and watches the ConfigMap, and gets the owners of what the hub creates, such as CronJobs. It needs permission for no more.
	Client cache.Getter
	// Namespace is the agent's.
	Namespace string
	// Name is the ConfigMap's, if not ConfigMap.
	Name         string
	Applications Applications
	Registerer   prometheus.Registerer
	Logger       *slog.Logger
}

// Policy decides what the hub may do.
type Policy struct {
	options  Options
	store    *follow.Store[*corev1.ConfigMap, *loadedRules]
	noRules  *Rules // while there is no ConfigMap
	fallback defaultRule
	rejected prometheus.Counter
	changed  signal.Broadcast // decisions may be others than before
}

// Decision is the policy's decision on a request.
type Decision struct {
	Allowed bool
	// Reason says why a request is denied. The user sees it.
	Reason string
	// Application is the one that the object belongs to, empty if a rule of the ConfigMap allows the request.
	Application string
	// Impersonates says that an allowed request is made as the user that the hub names. Otherwise the user must be left out.
	Impersonates bool
}

// loadedRules is what is kept of the ConfigMap.
type loadedRules struct {
	revision string
	rules    *Rules // nil if they are invalid
}

// New returns a policy that allows nothing until Run has found out whether there is a ConfigMap.
func New(o Options) *Policy {
	if o.Name == "" {
		o.Name = ConfigMap
	}
	p := &Policy{
		options: o, noRules: &Rules{}, fallback: defaultRule{applications: o.Applications, namespace: o.Namespace, client: o.Client},
		rejected: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "argocd_agent_policy_rejected_total",
			Help: "Invalid versions of the policy ConfigMap. While one is there, nothing is allowed.",
		}),
	}
	o.Registerer.MustRegister(p.rejected)
	follows := follow.ConfigMap[*loadedRules](o.Client, o.Namespace, o.Name)
	follows.Reduce = p.load
	follows.Changed = func(_, now *loadedRules) {
		if now == nil {
			o.Logger.Warn("Policy ConfigMap not found any more; using the default rule", "config_map", o.Name)
		}
		p.DecideAgain()
	}
	p.store = follow.New(follows)
	return p
}

// Run watches the ConfigMap until the context ends.
func (p *Policy) Run(ctx context.Context) { p.store.Run(ctx) }

// Ready returns nil once the policy knows whether there is a ConfigMap, and otherwise why it does not.
func (p *Policy) Ready() error { return p.store.Ready() }

// Changed returns a channel that is closed when decisions may be others than before: take it before Decide.
func (p *Policy) Changed() <-chan struct{} {
	return p.changed.Changed()
}

// DecideAgain reports that decisions may be others than before, by what Applications knows.
func (p *Policy) DecideAgain() {
	p.changed.Give()
}

// load parses a version of the ConfigMap. An invalid one allows nothing: the rules before may have allowed what its author means to
// forbid, and after a restart nobody knows them.
func (p *Policy) load(m *corev1.ConfigMap, old *loadedRules) *loadedRules {
	if old != nil && old.revision == m.ResourceVersion {
		return old
	}
	next := &loadedRules{revision: m.ResourceVersion}
	logger := p.options.Logger.With("config_map", m.Name, "resource_version", m.ResourceVersion)
	rules, err := parseKey(m)
	if err == nil {
		logger.Info("Loaded policy", "rules", len(rules.Rules), "applications", rules.defaultRule(), "impersonation", rules.impersonation())
		next.rules = rules
		return next
	}
	p.rejected.Inc()
	logger.Error("Invalid policy ConfigMap; the hub is allowed nothing until it is corrected or deleted", "error", err)
	return next
}

func parseKey(m *corev1.ConfigMap) (*Rules, error) {
	text, ok := m.Data[Key]
	if !ok {
		return nil, fmt.Errorf("it has no key %s", Key)
	}
	return ParseRules([]byte(text))
}

// Decide says whether a request is allowed. Its error is an *apihttp.Error if the request is invalid. Any other error means
// that the policy could not decide.
func (p *Policy) Decide(ctx context.Context, q *Request) (Decision, error) {
	if err := p.Ready(); err != nil {
		return Decision{}, fmt.Errorf("the policy is not known yet: %w", err)
	}
	rules := p.noRules
	if found, ok := p.store.Get(types.NamespacedName{Namespace: p.options.Namespace, Name: p.options.Name}); ok {
		rules = found.rules
	}
	if rules == nil {
		return p.explain(q, denied("the policy is invalid, so nothing is allowed: see the error in the agent's log")), nil
	}
	if q.Impersonates && rules.impersonation() == denyImpersonation {
		return p.explain(q, denied("impersonation is not allowed")), nil
	}
	decision, err := p.decide(ctx, rules, q)
	if err != nil {
		return Decision{}, err
	}
	decision.Impersonates = decision.Allowed && q.Impersonates && rules.impersonation() == allowImpersonation
	return decision, nil
}

// decide says whether a request is allowed by whoever asks.
func (p *Policy) decide(ctx context.Context, rules *Rules, q *Request) (Decision, error) {
	switch {
	case rules.allows(q):
		return Decision{Allowed: true}, nil
	case !rules.defaultRule():
		return p.explain(q, denied("no rule allows it")), nil
	}
	decision, err := p.fallback.decide(ctx, q)
	if err != nil || decision.Allowed {
		return decision, err
	}
	return p.explain(q, decision), nil
}

// explain completes the reason of a denial: what was requested, why it is denied, and how to allow it.
func (p *Policy) explain(q *Request, d Decision) Decision {
	asked := q.Verb + " " + q.Path
	if q.IsResourceRequest {
		resource := schema.GroupResource{Group: q.APIGroup, Resource: q.Resource}.String()
		if q.Subresource != "" {
			resource += "/" + q.Subresource
		}
		asked = q.Verb + " " + resource
		if q.Name != "" {
			asked += " " + q.Name
		}
		if q.Namespace != "" {
			asked += " in namespace " + q.Namespace
		}
	}
	d.Reason = fmt.Sprintf("the hub may not %.300s: %s. If it should, allow it in this cluster's ConfigMap %s/%s",
		asked, d.Reason, p.options.Namespace, p.options.Name)
	return d
}

// Forbidden returns a denial as the API server would say it.
func (d Decision) Forbidden(q *Request) *apihttp.Error {
	return &apihttp.Error{
		Code: http.StatusForbidden, Message: "forbidden: " + d.Reason,
		Details: &metav1.StatusDetails{Group: q.APIGroup, Kind: q.Resource, Name: q.Name},
	}
}
