package facets

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/argocd"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/converge"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/follow"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/mapping"
)

// Kind is a kind of objects besides applications.
type Kind string

// The kinds.
const (
	Project   Kind = "AppProject"
	Secret    Kind = "Secret"
	ConfigMap Kind = "ConfigMap"
)

// apiVersion is that of the kind's objects.
func (k Kind) apiVersion() string {
	if k == Project {
		return argocd.GroupVersion.String()
	}
	return "v1"
}

// Listener learns what changes in a cluster. It must not block.
type Listener interface {
	// ApplicationChanged says that an application was created (old is nil), changed or deleted (now is nil).
	ApplicationChanged(old, now *argocd.App)
	// RecordChanged says so of another object.
	RecordChanged(kind Kind, old, now *argocd.Record)
	// ApplicationsVanished says that a new list lacked applications that were there.
	ApplicationsVanished(gone []*argocd.App)
	// RecordsVanished says so of other objects.
	RecordsVanished(kind Kind, gone []*argocd.Record)
}

// Options say what of a cluster is followed.
type Options struct {
	Config *rest.Config
	// Name is what logs and errors call the cluster: hub or spoke.
	Name string
	// Namespace is that of Argo CD.
	Namespace string
	// ApplicationNamespace is that of the applications that are followed, empty for all.
	ApplicationNamespace string
	// Kinds are those that are followed besides applications.
	Kinds []Kind
	// KeepStatus says whether applications' statuses are kept as they are.
	KeepStatus bool
	// Group puts applications into groups; nil is one group.
	Group   func(*argocd.App) string
	Mapping mapping.Mapping
	// Selector is what source objects are shared by; nil is all. All are followed: a replica object is one whatever becomes of
	// its labels.
	Selector       labels.Selector
	AdoptionPolicy AdoptionPolicy
	// ClosedNamespace, on a spoke, is the one that the hub's applications may not deploy into, empty if there is none.
	ClosedNamespace string
	// OwnSecrets, on a spoke, are names of Secrets that the agent takes its own settings from, besides the usual ones. The hub writes none
	// of them.
	OwnSecrets []string
	// MirrorRules say, on a hub, what it shows of what autonomous agents have.
	MirrorRules argocd.MirrorRules
	// RefuseIntentSources says, of an autonomous spoke, that the hub may only have the applications' own sources deployed.
	RefuseIntentSources bool
	Listener            Listener
	// Agent returns, on a spoke, the name by which the hub knows the agent. It is known once the hub has said so.
	Agent func() string
	// Reporter reports what one side could not apply of the other's.
	Reporter Reporter
}

// Cluster is one cluster, as far as anything of it may be shared: what a Hub and a Spoke have in common.
type Cluster struct {
	Applications
	Projects, Secrets, ConfigMaps Records

	options Options
	names   []string // of the stores
	stores  []store
}

// store is what is to be done with any store.
type store interface {
	Run(ctx context.Context)
	Ready() error
	Wait(ctx context.Context) bool
}

// Open returns a cluster of which nothing is known until Run runs.
func Open(o Options) (*Cluster, error) {
	c := &Cluster{options: o}
	var err error
	if c.Applications, err = followed(o.Config, argocd.Applications(), argocd.Scope{Namespace: o.ApplicationNamespace},
		follow.Options[*argocd.Application, *argocd.App]{
			Reduce: argocd.Reduce(o.KeepStatus), Group: o.Group,
			Changed: o.Listener.ApplicationChanged, Vanished: o.Listener.ApplicationsVanished,
		}); err != nil {
		return nil, err
	}
	c.add("applications", c.Store)
	for _, k := range []struct {
		kind     Kind
		into     *Records
		resource argocd.Resource[*argocd.Object]
		scope    argocd.Scope
	}{
		{Project, &c.Projects, argocd.Projects(), argocd.Scope{Namespace: o.Namespace}},
		{Secret, &c.Secrets, argocd.Secrets(), argocd.Scope{Namespace: o.Namespace, Labels: argocd.RepositorySecrets()}},
		{ConfigMap, &c.ConfigMaps, argocd.ConfigMaps(), argocd.Scope{Namespace: o.Namespace, Fields: "metadata.name=" + argocd.KeysConfigMap}},
	} {
		if !slices.Contains(o.Kinds, k.kind) {
			continue
		}
		if *k.into, err = followed(o.Config, k.resource, k.scope, follow.Options[*argocd.Object, *argocd.Record]{
			Reduce:   argocd.ReduceObject,
			Group:    (*argocd.Record).SecretProject,
			Changed:  func(old, now *argocd.Record) { o.Listener.RecordChanged(k.kind, old, now) },
			Vanished: func(gone []*argocd.Record) { o.Listener.RecordsVanished(k.kind, gone) },
		}); err != nil {
			return nil, err
		}
		c.add(string(k.kind)+"s", k.into.Store)
	}
	return c, nil
}

// followed returns the objects of a kind in a scope.
func followed[R argocd.Raw, T Kept](config *rest.Config, r argocd.Resource[R], s argocd.Scope, o follow.Options[R, T]) (Objects[R, T], error) {
	client, err := argocd.NewClient(config, r, s)
	if err != nil {
		return Objects[R, T]{}, err
	}
	o.List, o.Watch, o.Kind = client.List, client.Watch, r.New()
	return Objects[R, T]{Client: client, Store: follow.New(o)}, nil
}

func (c *Cluster) add(name string, s store) {
	c.names, c.stores = append(c.names, name), append(c.stores, s)
}

// Run follows the cluster until the context ends.
func (c *Cluster) Run(ctx context.Context) {
	var parts sync.WaitGroup
	for _, s := range c.stores {
		parts.Go(func() { s.Run(ctx) })
	}
	parts.Wait()
}

// Wait waits until all is known, and reports whether that came before the end of the context.
func (c *Cluster) Wait(ctx context.Context) bool {
	for _, s := range c.stores {
		if !s.Wait(ctx) {
			return false
		}
	}
	return true
}

// Ready returns nil once all is known, and otherwise why it is not.
func (c *Cluster) Ready() error {
	for i, s := range c.stores {
		if err := s.Ready(); err != nil {
			return fmt.Errorf("%s on the %s: %w", c.names[i], c.options.Name, err)
		}
	}
	return nil
}

// reports returns what reports that an agent, or the hub, could not apply objects of a kind.
func (c *Cluster) reports(agent string, kind Kind) func(context.Context, *argocd.Record, converge.Result) {
	return func(ctx context.Context, r *argocd.Record, result converge.Result) {
		c.options.Reporter.Object(ctx, agent, kind, r, result)
	}
}

// offer returns what a rule leaves of an object, encoded, if it is to be shared, by its labels and all else.
func (c *Cluster) offer(r *argocd.Record, rule argocd.Rule, shared bool) ([]byte, converge.Version, bool) {
	if !shared || !c.Selects(&r.Head) {
		return nil, converge.Version{}, false
	}
	return r.EncodedBy(rule)
}

// Selects reports whether a source object is to be shared, as far as that is for its labels to say.
func (c *Cluster) Selects(object *argocd.Head) bool { return selects(c.options.Selector, object) }
