// Package guard reports deletions that the deletion guard paused to operators, by an error in the log and a Kubernetes Event,
// and takes their confirmation: any value of the ConfigMap argocd-agent-deletion-guard may be a confirmation token.
package guard

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

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
	// Shared, if set, has HeldConfigMap show what is held. The program may list, watch, create and patch it.
	Shared *Shared
	Logger *slog.Logger
}

// Controller reports paused deletions, and resumes those that an operator confirms.
type Controller struct {
	options Options
	tokens  *follow.Store[*corev1.ConfigMap, *corev1.ConfigMap]
	wake    signal.Signal
	held    *held // nil if HeldConfigMap shows nothing

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
	reportAt time.Time // what a namespace takes along comes one by one, and is reported together
	reported bool
	due      bool // it is to be reported now
}

// Confirm lets the paused deletions with a token go, and reports whether there were any. The agent is empty where there is
// only one.
type Confirm func(agent string, f converge.Facet, token string) bool

// New returns a controller that does nothing until Run runs.
func New(o Options) *Controller {
	c := &Controller{options: o, wake: signal.New(), paused: make(map[target]*state)}
	follows := followed(o.Client, o.Namespace, ConfigMap)
	follows.Changed = func(_, _ *corev1.ConfigMap) { c.wake.Give() }
	c.tokens = follow.New(follows)
	if o.Shared != nil {
		c.held = newHeld(o, *o.Shared, c.showAll)
	}
	return c
}

// followed returns options to follow a ConfigMap and keep all of it.
func followed(client typed.CoreV1Interface, namespace, name string) follow.Options[*corev1.ConfigMap, *corev1.ConfigMap] {
	follows := follow.ConfigMap[*corev1.ConfigMap](client.RESTClient(), namespace, name)
	follows.Reduce = func(m, _ *corev1.ConfigMap) *corev1.ConfigMap { return m }
	return follows
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
	s := &state{PausedDeletions: p, reportAt: time.Now()}
	if p.TakenAlong > 0 {
		s.reportAt = s.reportAt.Add(settle)
	}
	o.guard.setPaused(target{o.agent, p.Facet}, s)
}

func (o observer) DeletionsResumed(f converge.Facet) {
	o.Observer.DeletionsResumed(f)
	o.guard.setPaused(target{o.agent, f}, nil)
}

// Compared says that it is known what the agent holds of a facet. What is confirmed by now was confirmed while the agent was away.
func (o observer) Compared(f converge.Facet) {
	o.Observer.Compared(f)
	o.guard.held.mark(target{o.agent, f})
	o.guard.wake.Give()
}

func (c *Controller) setPaused(n target, s *state) {
	defer c.wake.Give()
	defer c.held.mark(n)
	c.mu.Lock()
	defer c.mu.Unlock()
	if s == nil {
		delete(c.paused, n)
		return
	}
	if before := c.paused[n]; before != nil && !before.reported && before.reportAt.Before(s.reportAt) {
		s.reportAt = before.reportAt
	}
	c.paused[n] = s
}

// settle is how long what is taken along is waited for before it is reported.
const settle = time.Second

// Run reports paused deletions and resumes those that are confirmed, until the context ends.
func (c *Controller) Run(ctx context.Context, confirm Confirm) {
	var following sync.WaitGroup
	defer following.Wait()
	following.Go(func() { c.tokens.Run(ctx) })
	if c.held != nil {
		following.Go(func() { c.held.current.Run(ctx) })
		following.Go(func() { c.sweepWhenKnown(ctx) })
	}
	later := time.NewTimer(0)
	defer later.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.wake:
		case <-later.C:
		}
		next := c.look(ctx, confirm)
		if c.held != nil && !c.held.show(ctx, c.pausedNow()) {
			next = earliest(next, time.Now().Add(showAgain))
		}
		if !next.IsZero() {
			later.Reset(time.Until(next))
		}
	}
}

// look resumes what is confirmed, reports what is due, and returns when the next report is, the zero time if none.
func (c *Controller) look(ctx context.Context, confirm Confirm) (next time.Time) {
	for n, s := range c.takeDue() {
		if c.isConfirmed(s.Token) {
			if confirm(n.agent, n.facet, s.Token) {
				c.options.Logger.Info("Deletions confirmed by token", "facet", n.facet, "agent", n.agent, "token", s.Token)
			}
			continue
		}
		switch {
		case s.due:
			c.report(ctx, n, s.PausedDeletions)
		case !s.reported:
			next = earliest(next, s.reportAt)
		}
	}
	return next
}

// earliest returns the earlier of two times, of which the first may be none.
func earliest(a, b time.Time) time.Time {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}

// isConfirmed reports whether a token is a value of the ConfigMap.
func (c *Controller) isConfirmed(token string) bool {
	m, ok := c.tokens.Get(types.NamespacedName{Namespace: c.options.Namespace, Name: ConfigMap})
	return ok && slices.Contains(slices.Collect(maps.Values(m.Data)), token)
}

// takeDue returns what deletions are paused, and counts those as reported whose time has come.
func (c *Controller) takeDue() map[target]state {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make(map[target]state, len(c.paused))
	for n, s := range c.paused {
		due := *s
		due.due = !s.reported && !time.Now().Before(s.reportAt)
		out[n] = due
		s.reported = s.reported || due.due
	}
	return out
}

// pausedNow returns what deletions are paused.
func (c *Controller) pausedNow() map[target]converge.PausedDeletions {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make(map[target]converge.PausedDeletions, len(c.paused))
	for n, s := range c.paused {
		out[n] = s.PausedDeletions
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
	c.options.Logger.Error(summary(p)+". Run the command in \"confirm_with\" to allow exactly these",
		"facet", p.Facet, "agent", n.agent, "token", p.Token, "objects", listed(p, 20), "confirm_with", command)
	about := corev1.ObjectReference{APIVersion: "v1", Kind: "ConfigMap", Namespace: c.options.Namespace, Name: ConfigMap}
	message := fmt.Sprintf("%s. To allow exactly these, run: %s", strings.Replace(summary(p), " objects;", fmt.Sprintf(" objects of %s;", n), 1), command)
	if objects := listed(p, 1); objects != "" {
		message += " (" + objects + ")"
	}
	events := kube.Events{Client: c.options.Client, Component: c.options.Component}
	if err := events.Warn(ctx, about, "DeletionsPaused", message); err != nil && ctx.Err() == nil {
		c.options.Logger.Warn("Failed to create Event", "error", err)
	}
}
