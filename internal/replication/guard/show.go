package guard

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	typed "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/converge"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/follow"
)

// Shared says of which agents a program shows in HeldConfigMap what is held: there may be several programs like it, and each writes the keys
// of its own agents.
type Shared struct {
	// Elsewhere reports whether another program like this one serves an agent, and so shows what is held of it.
	Elsewhere func(agent string) bool
	// Wait waits until it is known which agents there are, and reports whether that came before the end of the context. Of one that is not
	// Known nothing is shown.
	Wait  func(ctx context.Context) bool
	Known func(agent string) bool
}

// held has HeldConfigMap show what is held. It writes a key when that changes, and when it is known of an agent that has connected. So
// programs that do not know of each other for a while do not undo what the other has written again and again.
type held struct {
	Shared

	client  typed.ConfigMapInterface
	id      types.NamespacedName
	current *follow.Store[*corev1.ConfigMap, *corev1.ConfigMap]
	logger  *slog.Logger

	mu      sync.Mutex
	changed map[string]string // keys that may be wrong, with their agents. Guarded by mu

	failures int // in a row. show's own
}

// newHeld returns what shows held deletions. deleted is called when somebody deleted the ConfigMap.
func newHeld(o Options, shared Shared, deleted func()) *held {
	follows := followed(o.Client, o.Namespace, HeldConfigMap)
	follows.Changed = func(_, now *corev1.ConfigMap) {
		if now == nil {
			deleted()
		}
	}
	return &held{
		Shared: shared, client: o.Client.ConfigMaps(o.Namespace), id: types.NamespacedName{Namespace: o.Namespace, Name: HeldConfigMap},
		current: follow.New(follows), logger: o.Logger, changed: make(map[string]string),
	}
}

// mark says that what is shown of a facet may be wrong.
func (h *held) mark(n target) {
	if h != nil {
		h.putBack(map[string]string{n.String(): n.agent})
	}
}

// take returns the keys that may be wrong and are for this program to write.
func (h *held) take() map[string]string {
	h.mu.Lock()
	defer h.mu.Unlock()
	keys := h.changed
	h.changed = make(map[string]string)
	maps.DeleteFunc(keys, func(_, agent string) bool { return h.Elsewhere(agent) })
	return keys
}

// putBack says that keys may be wrong.
func (h *held) putBack(keys map[string]string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	maps.Copy(h.changed, keys)
}

// data returns what the ConfigMap shows, as far as this program knows.
func (h *held) data() map[string]string {
	if m, ok := h.current.Get(h.id); ok {
		return m.Data
	}
	return nil
}

// showAgain is how long to wait until what could not be shown is tried again.
const showAgain = 10 * time.Second

// show has the ConfigMap show what is paused where it may be wrong, and reports whether it does.
func (h *held) show(ctx context.Context, paused map[target]converge.PausedDeletions) bool {
	keys := h.take()
	if len(keys) == 0 {
		return true
	}
	err := h.current.Ready()
	if err == nil {
		err = h.write(ctx, keys, paused)
	}
	if err == nil || ctx.Err() != nil {
		h.failures = 0
		return true
	}
	h.putBack(keys)
	// The first list may be under way the first time.
	if h.failures++; h.failures == 2 {
		h.logger.Warn("Held deletions cannot be shown to argocd-agentctl; retrying. The principal has to list, watch, create and patch this ConfigMap",
			"config_map", HeldConfigMap, "error", err)
	}
	return false
}

// write writes these keys, if what they show is wrong. The ConfigMap is not created for nothing.
func (h *held) write(ctx context.Context, keys map[string]string, paused map[target]converge.PausedDeletions) error {
	shown := h.data()
	left := maxHeldBytes
	for key, text := range shown {
		if _, rewritten := keys[key]; !rewritten {
			left -= len(text)
		}
	}
	held, patch := data(paused, keys, left), make(map[string]any)
	for key := range keys {
		text, isHeld := held[key]
		if was, isShown := shown[key]; isHeld == isShown && was == text {
			continue
		}
		patch[key] = nil
		if isHeld {
			patch[key] = text
		}
	}
	if len(patch) == 0 {
		return nil
	}
	encoded, err := json.Marshal(map[string]any{"data": patch})
	if err != nil {
		return fmt.Errorf("encode: %w", err)
	}
	answer, err := h.client.Patch(ctx, HeldConfigMap, types.MergePatchType, encoded, metav1.PatchOptions{})
	if apierrors.IsNotFound(err) {
		if len(held) == 0 {
			return nil
		}
		created := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: HeldConfigMap}, Data: held}
		answer, err = h.client.Create(ctx, created, metav1.CreateOptions{})
	}
	if apierrors.IsAlreadyExists(err) { // another principal was faster
		answer, err = h.client.Patch(ctx, HeldConfigMap, types.MergePatchType, encoded, metav1.PatchOptions{})
	}
	if err == nil {
		_, err = h.current.RecordWrite(answer)
	}
	return err
}

// showAll has everything shown that is held.
func (c *Controller) showAll() {
	for n := range c.pausedNow() {
		c.held.mark(n)
	}
	c.wake.Give()
}

// sweepWhenKnown has nothing shown of agents that are gone, once it is known which there are.
func (c *Controller) sweepWhenKnown(ctx context.Context) {
	if c.held.current.Wait(ctx) && c.held.Wait(ctx) {
		c.sweep(func(agent string) bool { return !c.held.Known(agent) })
	}
}

// sweep has the keys of agents looked at.
func (c *Controller) sweep(which func(agent string) bool) {
	keys := make(map[string]string)
	for key := range c.held.data() {
		if agent, _, _ := strings.Cut(key, "."); which(agent) {
			keys[key] = agent
		}
	}
	c.held.putBack(keys)
	c.wake.Give()
}

// SetCluster does nothing: there is nothing to show of an agent before it connects. With RemoveCluster, it makes the controller a listener
// for the agents of the hub.
func (*Controller) SetCluster(_, _ string) {}

// RemoveCluster says that an agent may be gone for good.
func (c *Controller) RemoveCluster(agent string) {
	c.sweep(func(of string) bool { return of == agent && !c.held.Known(agent) })
}
