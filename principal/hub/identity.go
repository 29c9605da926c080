package hub

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	typed "k8s.io/client-go/kubernetes/typed/core/v1"
)

// identityName is the ConfigMap that the hub is known by.
const identityName = "argocd-agent-principal-identity"

// Identity identifies the hub to its agents: it is the UID of a ConfigMap. A hub that was restored from a backup of
// manifests has another one, and so have all its objects. That is how agents distinguish it from a hub where users deleted
// objects and created them again.
type Identity struct {
	client typed.ConfigMapInterface
	logger *slog.Logger
	known  chan struct{} // closed once the UID is known
	uid    string        // written before known is closed, and never again
}

// NewIdentity returns the identity of the hub whose Argo CD is in that namespace. It is known once Run has found out.
func NewIdentity(client typed.ConfigMapsGetter, namespace string, logger *slog.Logger) *Identity {
	return &Identity{client: client.ConfigMaps(namespace), logger: logger, known: make(chan struct{})}
}

// UID returns the identity, empty if it is not known.
func (i *Identity) UID() string {
	select {
	case <-i.known:
		return i.uid
	default:
		return ""
	}
}

// Wait waits until the identity is known, and reports whether that came before the end of the context.
func (i *Identity) Wait(ctx context.Context) bool {
	select {
	case <-i.known:
		return true
	case <-ctx.Done():
		return false
	}
}

// Ready returns nil once the identity is known, and otherwise why it is not.
func (i *Identity) Ready() error {
	if i.UID() == "" {
		return fmt.Errorf("ConfigMap %s: it is being read or created", identityName)
	}
	return nil
}

// Run finds out the identity.
func (i *Identity) Run(ctx context.Context) {
	backoff := wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: 1 << 30, Cap: 15 * time.Second}
	_ = wait.ExponentialBackoffWithContext(ctx, backoff, func(ctx context.Context) (bool, error) {
		uid, err := i.find(ctx)
		if err != nil {
			i.logger.Warn("Failed to read or create the identity ConfigMap; retrying", "config_map", identityName, "error", err)
			return false, nil
		}
		i.uid = uid
		close(i.known)
		return true, nil
	}) // which only fails when the context ends
}

func (i *Identity) find(ctx context.Context) (string, error) {
	found, err := i.client.Get(ctx, identityName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		found, err = i.client.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: identityName}}, metav1.CreateOptions{})
	}
	if err != nil {
		return "", err
	}
	return string(found.UID), nil
}
