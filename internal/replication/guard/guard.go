// Package guard is how a person learns of deletions that were held back, and how they let them go: by an error in the log,
// a Kubernetes Event, and the ConfigMap argocd-agent-brake, any value of which may be a brake's word.
package guard

import (
	"context"
	"fmt"
	"log/slog"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	typed "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/kube"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/signal"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/converge"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/follow"
)

// ConfigMap is the name of the ConfigMap that takes a person's word.
const ConfigMap = "argocd-agent-brake"

// Options configure a Desk.
type Options struct {
	Client    typed.CoreV1Interface
	Namespace string // that the ConfigMap and the Events are in
	Component string // that reports the Events
	Logger    *slog.Logger
}

// Desk is where brakes are reported and released.
type Desk struct {
	options Options
	words   *follow.Store[*corev1.ConfigMap, *words]
	wake    signal.Signal

	mu     sync.Mutex
	raised map[name]*report // the brakes that are on. Guarded by mu
}

// name is what a brake holds: a facet of an agent.
type name struct {
	agent string
	facet converge.Facet
}

// String is the key by which the ConfigMap's value is suggested.
func (n name) String() string {
	if n.agent == "" {
		return string(n.facet)
	}
	return n.agent + "." + string(n.facet)
}

type report struct {
	converge.PausedDeletions
	told bool
}

// Release lets deletions go that are held back under a word, and reports whether there were any. The agent is empty where
// there is only one.
type Release func(agent string, f converge.Facet, word string) bool

// New returns a desk that does nothing until Run runs.
func New(o Options) *Desk {
	d := &Desk{options: o, wake: signal.New(), raised: make(map[name]*report)}
	follows := follow.ConfigMap[*words](o.Client, o.Namespace, ConfigMap)
	follows.Reduce, follows.Changed = reduce, d.changed
	d.words = follow.New(follows)
	return d
}

func (d *Desk) changed(_, _ *words) { d.wake.Give() }

// words is what is kept of the ConfigMap.
type words struct {
	id       types.NamespacedName
	revision string
	values   map[string]bool
}

// ID returns the ConfigMap's namespace and name.
func (w *words) ID() types.NamespacedName { return w.id }

// Revision returns its resource version.
func (w *words) Revision() string { return w.revision }

func reduce(m *corev1.ConfigMap, _ *words) *words {
	w := &words{
		id:       types.NamespacedName{Namespace: m.Namespace, Name: m.Name},
		revision: m.ResourceVersion, values: make(map[string]bool),
	}
	for _, v := range m.Data {
		w.values[v] = true
	}
	return w
}

// Observer returns an observer that reports an agent's brakes here and passes everything on.
func (d *Desk) Observer(agent string, next converge.Observer) converge.Observer {
	return observer{next, d, agent}
}

type observer struct {
	converge.Observer
	desk  *Desk
	agent string
}

func (o observer) DeletionsPaused(b converge.PausedDeletions) {
	o.Observer.DeletionsPaused(b)
	o.desk.set(name{o.agent, b.Facet}, &report{PausedDeletions: b})
}

func (o observer) DeletionsResumed(f converge.Facet) {
	o.Observer.DeletionsResumed(f)
	o.desk.set(name{o.agent, f}, nil)
}

func (d *Desk) set(n name, r *report) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if r == nil {
		delete(d.raised, n)
		return
	}
	d.raised[n] = r
	d.wake.Give()
}

// Run reports brakes and releases those whose word is given, until the context ends.
func (d *Desk) Run(ctx context.Context, release Release) {
	var following sync.WaitGroup
	defer following.Wait()
	following.Go(func() { d.words.Run(ctx) })
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.wake:
		}
		for n, r := range d.brakes() {
			if w, ok := d.words.Get(types.NamespacedName{Namespace: d.options.Namespace, Name: ConfigMap}); ok && w.values[r.Token] {
				d.options.Logger.Info("A person's word was given", "facet", n.facet, "agent", n.agent, "word", r.Token)
				release(n.agent, n.facet, r.Token)
				continue
			}
			if !r.told {
				d.report(ctx, n, r.PausedDeletions)
			}
		}
	}
}

// brakes returns the brakes that are on, and counts them as told.
func (d *Desk) brakes() map[name]report {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := make(map[name]report, len(d.raised))
	for n, r := range d.raised {
		out[n] = *r
		r.told = true
	}
	return out
}

// report tells people of a brake.
func (d *Desk) report(ctx context.Context, n name, b converge.PausedDeletions) {
	// It works whether there is a ConfigMap or none, and takes no other word away: a field manager is for each. It needs no
	// quotes, which a log would escape.
	remedy := fmt.Sprintf("kubectl -n %[1]s create configmap %[2]s --from-literal=%[3]s=%[4]s --dry-run=client -o yaml"+
		" | kubectl -n %[1]s apply --server-side --force-conflicts --field-manager=%[4]s -f -",
		d.options.Namespace, ConfigMap, n, b.Token)
	d.options.Logger.Error("Deletions are held back: they are too many to be believed. To let them go, give the word",
		"facet", b.Facet, "agent", n.agent, "deletions", b.Deletions, "held", b.Total, "word", b.Token, "by", remedy)
	about := corev1.ObjectReference{APIVersion: "v1", Kind: "ConfigMap", Namespace: d.options.Namespace, Name: ConfigMap}
	message := fmt.Sprintf("%d of %d objects of %s would be deleted at once. If that is meant: %s", b.Deletions, b.Total, n, remedy)
	events := kube.Events{Client: d.options.Client, Component: d.options.Component}
	if err := events.Warn(ctx, about, "DeletionsHeldBack", message); err != nil && ctx.Err() == nil {
		d.options.Logger.Warn("Write an Event", "error", err)
	}
}
