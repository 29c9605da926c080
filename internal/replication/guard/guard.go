// Package guard reports deletions that the deletion guard paused to operators, by an error in the log and a Kubernetes Event,
// and takes their confirmation: any value of the ConfigMap argocd-agent-deletion-guard may be a confirmation token.
package guard

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	typed "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/kube"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/signal"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/converge"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/follow"
)

// ConfigMap is the name of the ConfigMap that takes confirmation tokens.
const ConfigMap = "argocd-agent-deletion-guard"

// Options configure a Controller.
type Options struct {
	Client    typed.CoreV1Interface
	Namespace string // that the ConfigMap and the Events are in
	Component string // that reports the Events
	Logger    *slog.Logger
}

// Controller reports paused deletions, and resumes those that an operator confirms.
type Controller struct {
	options Options
	tokens  *follow.Store[*corev1.ConfigMap, *corev1.ConfigMap]
	wake    signal.Signal

	mu     sync.Mutex
	paused map[target]*state // guarded by mu
}

// target is a facet of an agent.
type target struct {
	agent string
	facet converge.Facet
}

// String is the key by which the ConfigMap's value is suggested.
func (n target) String() string {
	if n.agent == "" {
		return string(n.facet)
	}
	return n.agent + "." + string(n.facet)
}

// state is what deletions are paused, and whether that was reported.
type state struct {
	converge.PausedDeletions
	reported bool
}

// Confirm lets the paused deletions with a token go, and reports whether there were any. The agent is empty where there is
// only one.
type Confirm func(agent string, f converge.Facet, token string) bool

// New returns a controller that does nothing until Run runs.
func New(o Options) *Controller {
	c := &Controller{options: o, wake: signal.New(), paused: make(map[target]*state)}
	follows := follow.ConfigMap[*corev1.ConfigMap](o.Client.RESTClient(), o.Namespace, ConfigMap)
	follows.Reduce = func(m, _ *corev1.ConfigMap) *corev1.ConfigMap { return m }
	follows.Changed = func(_, _ *corev1.ConfigMap) { c.wake.Give() }
	c.tokens = follow.New(follows)
	return c
}

// Observer returns an observer that reports an agent's paused deletions here and passes everything on.
func (c *Controller) Observer(agent string, next converge.Observer) converge.Observer {
	return observer{next, c, agent}
}

type observer struct {
	converge.Observer
	guard *Controller
	agent string
}

func (o observer) DeletionsPaused(p converge.PausedDeletions) {
	o.Observer.DeletionsPaused(p)
	o.guard.setPaused(target{o.agent, p.Facet}, &state{PausedDeletions: p})
}

func (o observer) DeletionsResumed(f converge.Facet) {
	o.Observer.DeletionsResumed(f)
	o.guard.setPaused(target{o.agent, f}, nil)
}

func (c *Controller) setPaused(n target, s *state) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s == nil {
		delete(c.paused, n)
		return
	}
	c.paused[n] = s
	c.wake.Give()
}

// Run reports paused deletions and resumes those that are confirmed, until the context ends.
func (c *Controller) Run(ctx context.Context, confirm Confirm) {
	var following sync.WaitGroup
	defer following.Wait()
	following.Go(func() { c.tokens.Run(ctx) })
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.wake:
		}
		for n, s := range c.takePaused() {
			if c.isConfirmed(s.Token) {
				c.options.Logger.Info("Deletions confirmed by token", "facet", n.facet, "agent", n.agent, "token", s.Token)
				confirm(n.agent, n.facet, s.Token)
				continue
			}
			if !s.reported {
				c.report(ctx, n, s.PausedDeletions)
			}
		}
	}
}

// isConfirmed reports whether a token is a value of the ConfigMap.
func (c *Controller) isConfirmed(token string) bool {
	m, ok := c.tokens.Get(types.NamespacedName{Namespace: c.options.Namespace, Name: ConfigMap})
	return ok && slices.Contains(slices.Collect(maps.Values(m.Data)), token)
}

// takePaused returns what deletions are paused, and counts them as reported.
func (c *Controller) takePaused() map[target]state {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make(map[target]state, len(c.paused))
	for n, s := range c.paused {
		out[n] = *s
		s.reported = true
	}
	return out
}

// report reports paused deletions to operators.
func (c *Controller) report(ctx context.Context, n target, p converge.PausedDeletions) {
	// It works whether there is a ConfigMap or none, and removes no other token: each has a field manager of its own. It needs
	// no quotes, which a log would escape.
	command := fmt.Sprintf("kubectl -n %[1]s create configmap %[2]s --from-literal=%[3]s=%[4]s --dry-run=client -o yaml"+
		" | kubectl -n %[1]s apply --server-side --force-conflicts --field-manager=%[4]s -f -",
		c.options.Namespace, ConfigMap, n, p.Token)
	//nolint:sloglint // the sentence is what operators read and search for, with its numbers
	c.options.Logger.Error(fmt.Sprintf("Resync would delete %d of %d objects; deletions paused. Run the command in \"confirm_with\" to allow exactly these",
		p.Deletions, p.Total), "facet", p.Facet, "agent", n.agent, "token", p.Token, "confirm_with", command)
	about := corev1.ObjectReference{APIVersion: "v1", Kind: "ConfigMap", Namespace: c.options.Namespace, Name: ConfigMap}
	message := fmt.Sprintf("Resync would delete %d of %d objects of %s; deletions paused. To allow exactly these, run: %s",
		p.Deletions, p.Total, n, command)
	events := kube.Events{Client: c.options.Client, Component: c.options.Component}
	if err := events.Warn(ctx, about, "DeletionsPaused", message); err != nil && ctx.Err() == nil {
		c.options.Logger.Warn("Failed to create Event", "error", err)
	}
}
