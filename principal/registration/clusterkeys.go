package registration

import (
	"log/slog"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/enrolltoken"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/argocd"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/follow"
)

// operatorKeys are the labels and annotations that operators gave agents' clusters when they made enrollment tokens. Nothing else of a token
// is kept.
type operatorKeys struct {
	id     types.NamespacedName
	logger *slog.Logger
	store  *follow.Store[*corev1.Secret, *said]
}

// said is what is kept of a version of the Secret.
type said struct {
	revision string
	keys     map[string]argocd.ClusterKeys // by agent; only of those that have any
}

func newOperatorKeys(client cache.Getter, namespace string, logger *slog.Logger) *operatorKeys {
	k := &operatorKeys{id: types.NamespacedName{Namespace: namespace, Name: enrolltoken.SecretName}, logger: logger}
	follows := follow.Secret[*said](client, namespace, enrolltoken.SecretName)
	follows.Reduce = k.read
	k.store = follow.New(follows)
	return k
}

// of returns what was said of an agent's cluster.
func (k *operatorKeys) of(agent string) argocd.ClusterKeys {
	now, found := k.store.Get(k.id)
	if !found {
		return argocd.ClusterKeys{}
	}
	return now.keys[agent]
}

// read returns what is kept of a version. An entry that the API server would refuse counts for nothing.
func (k *operatorKeys) read(found *corev1.Secret, old *said) *said {
	if old != nil && old.revision == found.ResourceVersion {
		return old
	}
	now := &said{found.ResourceVersion, make(map[string]argocd.ClusterKeys)}
	for agent, text := range found.Data {
		entry, err := enrolltoken.Decode(text)
		keys := argocd.ClusterKeys{Labels: entry.Labels, Annotations: entry.Annotations}
		if err == nil {
			err = keys.Check()
		}
		switch {
		case err != nil:
			k.logger.Warn("Ignored labels and annotations of an enrollment token", "secret", k.id.String(), "agent", agent, "reason", err)
		case len(keys.Labels)+len(keys.Annotations) > 0:
			now.keys[agent] = keys
		}
	}
	return now
}
