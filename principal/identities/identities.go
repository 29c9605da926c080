// Package identities follows the ConfigMap that says which SPIFFE IDs are of which agents.
package identities

import (
	"context"
	"fmt"
	"log/slog"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/follow"
)

// ConfigMap is the name of the ConfigMap. Each key of its data is an agent, each value its SPIFFE IDs, one a line.
const ConfigMap = "argocd-agent-identities"

// Options configure Identities.
type Options struct {
	// Client reads the ConfigMap. It needs the right to list and watch only that one.
	Client cache.Getter
	// Namespace is that of Argo CD.
	Namespace string
	// Changed is called when the table has changed. It must not block.
	Changed func()
	Logger  *slog.Logger
}

// Identities is the table of SPIFFE IDs, as it is now.
type Identities struct {
	options Options
	store   *follow.Store[*corev1.ConfigMap, *loaded]
}

// loaded is what is kept of the ConfigMap.
type loaded struct {
	revision string
	table    identity.Table
}

// New returns Identities that know nobody until Run has found the ConfigMap.
func New(o Options) *Identities {
	i := &Identities{options: o}
	follows := follow.ConfigMap[*loaded](o.Client, o.Namespace, ConfigMap)
	follows.Reduce = i.load
	follows.Changed = func(_, _ *loaded) { o.Changed() }
	follows.Vanished = func([]*loaded) { o.Changed() }
	i.store = follow.New(follows)
	return i
}

// Run follows the ConfigMap until the context ends.
func (i *Identities) Run(ctx context.Context) { i.store.Run(ctx) }

// Wait waits until the table is known, and reports whether that came before the end of the context.
func (i *Identities) Wait(ctx context.Context) bool { return i.store.Wait(ctx) }

// Ready returns nil once the table is known, and otherwise why it is not.
func (i *Identities) Ready() error {
	if err := i.store.Ready(); err != nil {
		return fmt.Errorf("table of SPIFFE IDs, ConfigMap %s/%s: %w", i.options.Namespace, ConfigMap, err)
	}
	return nil
}

// Table returns the table. It is empty if there is no ConfigMap.
func (i *Identities) Table() identity.Table {
	now, found := i.store.Get(types.NamespacedName{Namespace: i.options.Namespace, Name: ConfigMap})
	if !found {
		return identity.Table{}
	}
	return now.table
}

// load reads a version of the ConfigMap. What is wrong in it names nobody: those agents are refused until it is mended.
func (i *Identities) load(m *corev1.ConfigMap, old *loaded) *loaded {
	if old != nil && old.revision == m.ResourceVersion {
		return old
	}
	table, err := identity.ParseTable(m.Data)
	logger := i.options.Logger.With("config_map", m.Namespace+"/"+m.Name, "resource_version", m.ResourceVersion, "spiffe_ids", table.Len())
	if err != nil {
		logger.Error("Invalid entries in the table of SPIFFE IDs; they name no agent", "error", err)
	} else {
		logger.Info("Loaded table of SPIFFE IDs")
	}
	return &loaded{m.ResourceVersion, table}
}
