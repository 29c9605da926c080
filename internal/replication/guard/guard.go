// Package guard reports deletions that the deletion guard paused to operators, by an error in the log and a Kubernetes Event,
// and takes their confirmation: any value of the ConfigMap argocd-agent-deletion-guard may be a confirmation token.
package guard

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	// ShowHeld says that HeldConfigMap shows what is held. The program may get, create and patch it.
	ShowHeld bool
	Logger   *slog.Logger
}

// Controller reports paused deletions, and resumes those that an operator confirms.
type Controller struct {
	options Options
	tokens  *follow.Store[*corev1.ConfigMap, *corev1.ConfigMap]
	wake    signal.Signal

	mu      sync.Mutex
	paused  map[target]*state // guarded by mu
	changed bool              // paused has changed since it was shown. Guarded by mu

	unshown bool              // it could not be shown the last time. Run's own
	shown   map[string]string // what HeldConfigMap shows, nil if that is not known. Run's own
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

func (c *Controller) setPaused(n target, s *state) {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer c.wake.Give()
	c.changed = true
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
	later := time.NewTimer(0)
	defer later.Stop()
	c.setChanged() // what an earlier life of the program showed is no longer held
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.wake:
		case <-later.C:
		}
		var next time.Time
		for n, s := range c.takePaused() {
			if c.isConfirmed(s.Token) {
				c.options.Logger.Info("Deletions confirmed by token", "facet", n.facet, "agent", n.agent, "token", s.Token)
				confirm(n.agent, n.facet, s.Token)
				continue
			}
			switch {
			case s.due:
				c.report(ctx, n, s.PausedDeletions)
			case !s.reported:
				next = earliest(next, s.reportAt)
			}
		}
		if c.options.ShowHeld && !c.show(ctx) {
			next = earliest(next, time.Now().Add(showAgain))
		}
		if !next.IsZero() {
			later.Reset(time.Until(next))
		}
	}
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

// takePaused returns what deletions are paused, and counts those as reported whose time has come.
func (c *Controller) takePaused() map[target]state {
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

func (c *Controller) setChanged() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.changed = true
}

// takeShown returns what is to be shown if that has changed since it was shown, and counts it as shown.
func (c *Controller) takeShown() (map[string]string, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.changed {
		return nil, false
	}
	c.changed = false
	return data(c.paused), true
}

// showAgain is how long to wait until what could not be shown is tried again.
const showAgain = 10 * time.Second

// show has HeldConfigMap show what is paused, and reports whether it does.
func (c *Controller) show(ctx context.Context) bool {
	shows, changed := c.takeShown()
	if !changed {
		return true
	}
	err := c.writeHeld(ctx, shows)
	if err == nil || ctx.Err() != nil {
		c.unshown = false
		return true
	}
	if !c.unshown {
		c.options.Logger.Warn("Held deletions cannot be shown to argocd-agentctl; retrying. The principal has to get, create and patch this ConfigMap",
			"config_map", HeldConfigMap, "error", err)
	}
	c.unshown = true
	c.setChanged()
	return false
}

// writeHeld makes this the data of HeldConfigMap, if it is not. It is not created for nothing.
func (c *Controller) writeHeld(ctx context.Context, data map[string]string) error {
	client := c.options.Client.ConfigMaps(c.options.Namespace)
	if c.shown == nil {
		found, err := client.Get(ctx, HeldConfigMap, metav1.GetOptions{})
		if ignoreNotFound(err) != nil {
			return err
		}
		c.shown = make(map[string]string)
		if err == nil {
			maps.Copy(c.shown, found.Data)
		}
	}
	if maps.Equal(c.shown, data) {
		return nil
	}
	c.shown = nil // a write that fails may have been done
	patch, err := json.Marshal([]map[string]any{{"op": "add", "path": "/data", "value": data}})
	if err != nil {
		return fmt.Errorf("encode: %w", err)
	}
	_, err = client.Patch(ctx, HeldConfigMap, types.JSONPatchType, patch, metav1.PatchOptions{})
	if apierrors.IsNotFound(err) && len(data) > 0 {
		_, err = client.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: HeldConfigMap}, Data: data}, metav1.CreateOptions{})
	}
	if ignoreNotFound(err) != nil {
		return err
	}
	c.shown = data
	return nil
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
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
