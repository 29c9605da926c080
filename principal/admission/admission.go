// Package admission decides which of those who come with a certificate of a trusted CA the hub admits: nobody who is on its
// blocklist and, if that is wanted, no agent without a cluster Secret. It follows the ConfigMap of the blocklist, which package blocklist
// reads.
package admission

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/blocklist"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/follow"
)

// Options configure an Admission.
type Options struct {
	// Client reads the ConfigMap. It needs the right to list and watch only that one.
	Client cache.Getter
	// Namespace is that of Argo CD.
	Namespace string
	// Trust verifies proofs, whoever they are of.
	Trust identity.Trust
	// Identify finds the agent that a proof names.
	Identify *identity.Authenticator
	// HasCluster, if set, reports whether an agent has a cluster Secret. Without one it is not admitted. Whoever learns of changes
	// notifies the Admission, which is a clusters.Listener.
	HasCluster func(agent string) bool
	// Blocked is told the keys of the blocklist whenever it changes, before anybody is refused for them. It must not block.
	Blocked func(keys []string)
	Logger  *slog.Logger
}

// Admission is a Trust that refuses whoever is on the blocklist, and agents that lack a cluster Secret.
type Admission struct {
	*identity.Restriction

	options Options
	store   *follow.Store[*corev1.ConfigMap, *loaded]
}

// loaded is what is kept of the ConfigMap.
type loaded struct {
	revision string
	list     blocklist.List
	// failure is why nobody is admitted: a key could not be read at the start, and may be about anybody.
	failure error
}

// New returns an admission that admits nobody until Run has found out who is blocked.
func New(o Options) *Admission {
	a := &Admission{options: o}
	a.Restriction = identity.Restrict(o.Trust, a.refuses)
	follows := follow.ConfigMap[*loaded](o.Client, o.Namespace, blocklist.ConfigMap)
	follows.Reduce = func(m *corev1.ConfigMap, old *loaded) *loaded { return a.load(m, old, a.store.Ready() == nil) }
	follows.Changed = func(_, now *loaded) { a.changed(now) }
	follows.Vanished = func([]*loaded) { a.changed(nil) }
	a.store = follow.New(follows)
	return a
}

// Run follows the ConfigMap, and the Trust, until the context ends.
func (a *Admission) Run(ctx context.Context) {
	var work sync.WaitGroup
	work.Go(func() { a.store.Run(ctx) })
	a.Restriction.Run(ctx)
	work.Wait()
}

// Wait waits until it is known who is blocked, and reports whether that came before the end of the context.
func (a *Admission) Wait(ctx context.Context) bool { return a.store.Wait(ctx) }

// Ready returns nil once it is known who is blocked, and otherwise why it is not.
func (a *Admission) Ready() error {
	err := a.store.Ready()
	if now := a.current(); err == nil && now != nil {
		err = now.failure
	}
	if err != nil {
		return fmt.Errorf("blocklist, ConfigMap %s/%s: %w", a.options.Namespace, blocklist.ConfigMap, err)
	}
	return nil
}

// current returns what is known of the ConfigMap, nil if there is none.
func (a *Admission) current() *loaded {
	now, _ := a.store.Get(types.NamespacedName{Namespace: a.options.Namespace, Name: blocklist.ConfigMap})
	return now
}

// refuses returns why a peer whose proof is good is not admitted, nil if it is.
func (a *Admission) refuses(peer identity.Peer) error {
	if err := a.Ready(); err != nil {
		return err
	}
	agent, err := a.options.Identify.AgentOf(peer.Proof) // what names no agent may be blocked in other ways
	if peer.Agent != "" && agent != peer.Agent {
		return fmt.Errorf("it is no longer that of agent %s: %w", peer.Agent, cmp.Or(err, fmt.Errorf("it is that of agent %s now", agent)))
	}
	if now := a.current(); now != nil {
		if err := now.list.Refuses(peer.Proof, agent); err != nil {
			return err
		}
	}
	if agent == "" || a.options.Identify.ComponentOf(peer.Proof) != "" {
		return nil
	}
	return a.lacksCluster(agent)
}

// Refuses returns why an agent is not admitted whatever its proof, nil if it may be.
func (a *Admission) Refuses(agent identity.Agent) error {
	if err := a.Ready(); err != nil {
		return err
	}
	if now := a.current(); now != nil {
		if err := now.list.Refuses(identity.Proof{}, agent); err != nil {
			return err
		}
	}
	return a.lacksCluster(agent)
}

// lacksCluster returns an error if an agent needs a cluster Secret and has none.
func (a *Admission) lacksCluster(agent identity.Agent) error {
	if a.options.HasCluster == nil || a.options.HasCluster(string(agent)) {
		return nil
	}
	return fmt.Errorf("the hub has no cluster Secret of agent %s, which the principal's setting --require-cluster-secret asks for: "+
		"create it with: argocd-agentctl agent create %s", agent, agent)
}

// SetCluster implements clusters.Listener.
func (a *Admission) SetCluster(string, string) {}

// RemoveCluster implements clusters.Listener.
func (a *Admission) RemoveCluster(string) {
	if a.options.HasCluster != nil {
		a.Recheck()
	}
}

// load reads a version of the ConfigMap. If a key cannot be read, what was blocked before stays blocked, and so is what can be
// read. What was blocked before a program started nobody knows: then nobody is admitted. running says that it is not so.
func (a *Admission) load(m *corev1.ConfigMap, old *loaded, running bool) *loaded {
	if old != nil && old.revision == m.ResourceVersion {
		return old
	}
	next := &loaded{revision: m.ResourceVersion}
	var err error
	next.list, err = blocklist.Parse(m.Data)
	logger := a.options.Logger.With("config_map", m.Namespace+"/"+m.Name, "resource_version", m.ResourceVersion)
	switch {
	case err == nil:
		logger.Info("Loaded blocklist", "keys", len(next.list.Keys()))
		return next
	case !running, old != nil && old.failure != nil:
		next.failure = err
		logger.Error("Invalid blocklist; nobody is admitted until it can be read", "error", err)
	default:
		logger.Error("Invalid blocklist; what was blocked before stays blocked, as does what can be read", "error", err)
	}
	if old != nil {
		next.list = next.list.With(old.list)
	}
	return next
}

// changed takes in that the ConfigMap changed or, if it is nil, is gone.
func (a *Admission) changed(now *loaded) {
	var keys []string
	if now != nil {
		keys = now.list.Keys()
	} else {
		a.options.Logger.Warn("Blocklist ConfigMap not found any more; nobody is blocked", "config_map", a.options.Namespace+"/"+blocklist.ConfigMap)
	}
	a.options.Blocked(keys)
	a.Recheck()
}
