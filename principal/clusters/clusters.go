// Package clusters follows the Secrets by which Argo CD on the hub knows the agents' clusters.
package clusters

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/argocd"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/follow"
)

// Listener is notified of the agents' clusters. It must not block.
type Listener interface {
	// SetCluster says that an agent's cluster has that address.
	SetCluster(agent, server string)
	// RemoveCluster says that an agent has no cluster any more.
	RemoveCluster(agent string)
}

// Clusters follows cluster Secrets.
type Clusters struct {
	store     *follow.Store[*corev1.Secret, *cluster]
	others    *follow.Store[*corev1.Secret, *cluster] // that are no agents', by their names in Argo CD
	listeners []Listener                              // only changed before Run
	logger    *slog.Logger
}

// cluster is what is kept of a Secret: none of its credentials.
type cluster struct {
	id     types.NamespacedName
	agent  string
	name   string // in Argo CD
	server string
	mode   string // that the agent is to have; empty if it does not say
	guard  guardLimits
	fault  string // why it is passed over; empty if it is not
	// registered is what is known of a Secret that a principal made; nil of others.
	registered *argocd.Registered
}

// lacksServer reports whether a Secret that is not passed over lacks the address of the cluster.
func (c *cluster) lacksServer() bool { return c.fault == "" && c.server == "" }

// New returns clusters that follow the Secrets in the namespace of Argo CD once Run runs.
func New(client cache.Getter, namespace string, logger *slog.Logger) *Clusters {
	c := &Clusters{logger: logger}
	followed := func(selector string, o follow.Options[*corev1.Secret, *cluster]) *follow.Store[*corev1.Secret, *cluster] {
		secrets := cache.NewFilteredListWatchFromClient(client, "secrets", namespace, func(o *metav1.ListOptions) { o.LabelSelector = selector })
		o.List, o.Watch, o.Kind, o.Reduce = secrets.ListWithContextFunc, secrets.WatchFuncWithContext, &corev1.Secret{}, reduce
		return follow.New(o)
	}
	c.store = followed(argocd.ClusterSelector, follow.Options[*corev1.Secret, *cluster]{
		Group: func(c *cluster) string { return c.agent }, Changed: c.changed, Vanished: c.vanished,
	})
	c.others = followed(argocd.OtherClusterSelector, follow.Options[*corev1.Secret, *cluster]{
		Group: func(c *cluster) string { return c.name },
	})
	return c
}

// Other returns the Secret of a cluster which Argo CD calls as the agent is called, and which is not that agent's; empty if there
// is none. What such an agent shows would be shown as of that cluster, and deployed there.
func (c *Clusters) Other(agent string) string {
	for one := range c.others.Group(agent) {
		return one.id.String()
	}
	for one := range c.store.All() {
		if one.name == agent && one.agent != agent {
			return one.id.String()
		}
	}
	return ""
}

// Subscribe adds a listener, which is notified of every cluster from the first on. It must be called before Run.
func (c *Clusters) Subscribe(l Listener) { c.listeners = append(c.listeners, l) }

// Server returns the address of an agent's cluster, empty if it has none.
func (c *Clusters) Server(agent string) string {
	if all := c.validOf(agent); len(all) > 0 {
		return all[0].server
	}
	return ""
}

// Has reports whether an agent has a cluster Secret, also one without a server, or one that is passed over.
func (c *Clusters) Has(agent string) bool {
	for range c.store.Group(agent) {
		return true
	}
	return false
}

// Mode returns the mode that an agent is to have, empty if no Secret says so. Also a Secret that is passed over otherwise says so:
// what binds an agent is not lost with its address.
func (c *Clusters) Mode(agent string) string {
	if all := c.validOf(agent); len(all) > 0 {
		return all[0].mode
	}
	for one := range c.store.Group(agent) {
		if one.mode != "" {
			return one.mode
		}
	}
	return ""
}

// validOf returns an agent's valid clusters, sorted by the names of their Secrets. The first is used, so a restart changes nothing.
func (c *Clusters) validOf(agent string) []*cluster {
	var all []*cluster
	for one := range c.store.Group(agent) {
		if one.fault == "" {
			all = append(all, one)
		}
	}
	slices.SortFunc(all, func(a, b *cluster) int { return strings.Compare(a.id.Name, b.id.Name) })
	return all
}

// Run follows the Secrets until the context ends.
func (c *Clusters) Run(ctx context.Context) {
	var stores sync.WaitGroup
	stores.Go(func() { c.others.Run(ctx) })
	stores.Go(func() { c.store.Run(ctx) })
	stores.Wait()
}

// Wait waits until all Secrets are known, and reports whether that came before the end of the context.
func (c *Clusters) Wait(ctx context.Context) bool { return c.store.Wait(ctx) && c.others.Wait(ctx) }

// Ready returns nil once all Secrets are known, and otherwise why they are not.
func (c *Clusters) Ready() error {
	if err := errors.Join(c.store.Ready(), c.others.Ready()); err != nil {
		return fmt.Errorf("cluster Secrets on the hub: %w", err)
	}
	return nil
}

// reduce returns what is kept of a Secret. All that the principal knows is passed to the hub's components, as text: a Secret
// that holds something else is ignored, so that it cannot keep them from getting the others.
func reduce(s *corev1.Secret, _ *cluster) *cluster {
	c := &cluster{
		id:    types.NamespacedName{Namespace: s.Namespace, Name: s.Name},
		agent: s.Labels[argocd.LabelAgent], name: argocd.ClusterNameOf(s), mode: s.Labels[argocd.LabelMode], guard: readGuardLimits(s.Annotations),
	}
	server := argocd.ServerOf(s)
	if _, err := identity.ParseAgent(c.agent); err != nil {
		c.fault = fmt.Sprintf("label %s: %v", argocd.LabelAgent, err)
	} else if !utf8.ValidString(server) {
		c.fault = "key server: it is no UTF-8 text: write the address of the agent's cluster there"
	} else {
		c.server = server
	}
	if argocd.IsSelfRegistered(s) {
		c.registered = argocd.ReadRegistered(s)
	}
	return c
}

func (c *Clusters) changed(old, now *cluster) {
	if now != nil && now.fault != "" && (old == nil || old.fault != now.fault) {
		c.logger.Warn("Ignored invalid cluster Secret", "secret", now.id.String(), "reason", now.fault)
	}
	if now != nil && now.lacksServer() && (old == nil || !old.lacksServer()) {
		c.logger.Warn("Cluster Secret has no server, so Argo CD does not know the agent's cluster; write its address there",
			"secret", now.id.String(), "agent", now.agent, "key", "server")
	}
	if now != nil && now.guard.fault != "" && (old == nil || old.guard.fault != now.guard.fault) {
		c.logger.Warn("Ignored invalid limit of the deletion guard; the principal's own holds", "secret", now.id.String(), "agent", now.agent,
			"reason", now.guard.fault)
	}
	if old != nil && (now == nil || now.agent != old.agent) {
		c.notifyListeners(old.agent)
	}
	if now != nil {
		c.notifyListeners(now.agent)
	}
}

func (c *Clusters) vanished(gone []*cluster) {
	for _, g := range gone {
		c.notifyListeners(g.agent)
	}
}

// notifyListeners gives the listeners the cluster that an agent has now.
func (c *Clusters) notifyListeners(agent string) {
	all := c.validOf(agent)
	if len(all) > 1 {
		c.logger.Warn("Several cluster Secrets name the same agent; using the first by name, delete the others",
			"agent", agent, "using", all[0].id.Name, "ignored", all[1].id.Name)
	}
	for _, l := range c.listeners {
		if len(all) == 0 {
			l.RemoveCluster(agent)
		} else {
			l.SetCluster(agent, all[0].server)
		}
	}
}
