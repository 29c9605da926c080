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
	typed "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/agent/ownership"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/follow"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/apihttp"
)

const (
	// ConfigMap is the name of the ConfigMap that holds the rules, unless another is set.
	ConfigMap = "argocd-agent-policy"
	// Key is the key in it that does.
	Key = "policy.yaml"
)

// Applications knows what belongs to an application.
type Applications interface {
	// Lookup returns the application that an object belongs to, the zero Owner if there is none, and an error if it cannot
	// be found out.
	Lookup(ctx context.Context, o ownership.Object) (ownership.Owner, error)
}

// Options configure a Policy.
type Options struct {
	// Client reads the ConfigMap. It needs leave to list and watch that one only.
	Client typed.ConfigMapsGetter
	// Namespace is the agent's.
	Namespace string
	// Name is the ConfigMap's, if not ConfigMap.
	Name         string
	Applications Applications
	Registerer   prometheus.Registerer
	Logger       *slog.Logger
}

// Policy says what the hub may do.
type Policy struct {
	options  Options
	store    *follow.Store[*corev1.ConfigMap, *loaded]
	standard *Rules // hold while there is no ConfigMap
	fallback belonging
	rejected prometheus.Counter
}

// Decision is a policy's word on a request.
type Decision struct {
	Allowed bool
	// Reason says why, in words for the user, if it is not allowed.
	Reason string
	// Application is the one that it is allowed for, empty if a rule of the ConfigMap allows it.
	Application string
}

// loaded is what is kept of the ConfigMap.
type loaded struct {
	id       types.NamespacedName
	revision string
	rules    *Rules
}

// ID returns the ConfigMap's namespace and name.
func (l *loaded) ID() types.NamespacedName { return l.id }

// Revision returns its resource version.
func (l *loaded) Revision() string { return l.revision }

// New returns a policy that allows nothing until Run has found out whether there is a ConfigMap.
func New(o Options) *Policy {
	if o.Name == "" {
		o.Name = ConfigMap
	}
	p := &Policy{
		options: o, standard: &Rules{}, fallback: belonging{applications: o.Applications, namespace: o.Namespace},
		rejected: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "argocd_agent_policy_rejected_total",
			Help: "Versions of the policy's ConfigMap that could not be used, so that an older one or the default held on.",
		}),
	}
	o.Registerer.MustRegister(p.rejected)
	follows := follow.ConfigMap[*loaded](o.Client, o.Namespace, o.Name)
	follows.Reduce = p.load
	follows.Changed = func(_, now *loaded) {
		if now == nil {
			o.Logger.Warn("The policy's ConfigMap is gone, the default rule holds", "config_map", o.Name)
		}
	}
	p.store = follow.New(follows)
	return p
}

// Run follows the ConfigMap until the context ends.
func (p *Policy) Run(ctx context.Context) { p.store.Run(ctx) }

// Ready returns nil once it is known whether there is a ConfigMap, and otherwise why it is not.
func (p *Policy) Ready() error { return p.store.Ready() }

// load reads a version of the ConfigMap. One that is no good leaves what was before.
func (p *Policy) load(m *corev1.ConfigMap, old *loaded) *loaded {
	if old != nil && old.revision == m.ResourceVersion {
		return old
	}
	next := &loaded{id: types.NamespacedName{Namespace: m.Namespace, Name: m.Name}, revision: m.ResourceVersion}
	logger := p.options.Logger.With("config_map", m.Name, "resource_version", m.ResourceVersion)
	rules, err := parseKey(m)
	if err == nil {
		logger.Info("The policy is in force", "rules", len(rules.Rules), "applications", rules.applications(), "impersonation", rules.impersonation())
		next.rules = rules
		return next
	}
	p.rejected.Inc()
	if old != nil {
		logger.Error("The policy cannot be used, the one before it holds on: mend the ConfigMap", "error", err)
		next.rules = old.rules
		return next
	}
	logger.Error("The policy cannot be used, the default rule holds: mend the ConfigMap", "error", err)
	next.rules = p.standard
	return next
}

func parseKey(m *corev1.ConfigMap) (*Rules, error) {
	text, ok := m.Data[Key]
	if !ok {
		return nil, fmt.Errorf("it has no key %s", Key)
	}
	return ParseRules([]byte(text))
}

// Decide says whether a request is allowed. Its error is an *apihttp.Error where it is the request's fault; any other
// means that it could not be found out.
func (p *Policy) Decide(ctx context.Context, q *Request) (Decision, error) {
	if err := p.Ready(); err != nil {
		return Decision{}, fmt.Errorf("the policy is not known yet: %w", err)
	}
	rules := p.standard
	if found, ok := p.store.Get(types.NamespacedName{Namespace: p.options.Namespace, Name: p.options.Name}); ok {
		rules = found.rules
	}
	switch {
	case q.Impersonates && !rules.impersonation():
		return p.explain(q, denied("to act as somebody else is not allowed")), nil
	case rules.allow(q):
		return Decision{Allowed: true}, nil
	case !rules.applications():
		return p.explain(q, denied("no rule allows it")), nil
	}
	decision, err := p.fallback.decide(ctx, q)
	if err != nil || decision.Allowed {
		return decision, err
	}
	return p.explain(q, decision), nil
}

// explain makes a denial's reason a whole one: what was asked, why it is denied, and what to do if that is not right.
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
