package registration

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/certs"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/certs/secret"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/argocd"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/follow"
)

// SourceOptions configure a Source.
type SourceOptions struct {
	// Client reads the Secret. It needs the right to list and watch that one.
	Client cache.Getter
	// Namespace and Name are the Secret's.
	Namespace, Name string
	// Identify finds out whether the certificate would be an agent's or a component's at the principal.
	Identify *identity.Authenticator
	Logger   *slog.Logger
}

// Source is the Secret of the client certificate that all self-registered clusters share. Of what cannot be used, the last one that can
// is used on.
type Source struct {
	options SourceOptions
	store   *follow.Store[*corev1.Secret, *loaded]
	changed func()

	mu      sync.Mutex
	good    *argocd.ClusterTLS // nil before there has been one. Guarded by mu
	failure error              // why the Secret cannot be used as it is. Guarded by mu
}

// loaded is a version of the Secret.
type loaded struct {
	revision string
	tls      argocd.ClusterTLS
	failure  error
}

// NewSource returns a Source that knows nothing until a Registrar that has it runs.
func NewSource(o SourceOptions) *Source {
	s := &Source{options: o, failure: errors.New("not found"), changed: func() {}}
	follows := follow.Secret[*loaded](o.Client, o.Namespace, o.Name)
	follows.Reduce = func(found *corev1.Secret, old *loaded) *loaded {
		if old != nil && old.revision == found.ResourceVersion {
			return old
		}
		access, err := s.read(found.Data)
		return &loaded{found.ResourceVersion, access, err}
	}
	follows.Changed = func(_, now *loaded) { s.take(now) }
	follows.Vanished = func([]*loaded) { s.take(nil) }
	s.store = follow.New(follows)
	return s
}

// run follows the Secret until the context ends, and calls changed when there is another certificate. That must not block.
func (s *Source) run(ctx context.Context, changed func()) {
	s.changed = changed
	s.store.Run(ctx)
}

// take takes in a version of the Secret; nil if it is gone.
func (s *Source) take(now *loaded) {
	if now == nil {
		now = &loaded{failure: errors.New("not found")}
	}
	logger := s.options.Logger.With("secret", s.options.Namespace+"/"+s.options.Name)
	s.mu.Lock()
	s.failure = now.failure
	if now.failure == nil {
		s.good = &now.tls
	}
	s.mu.Unlock()
	if now.failure != nil {
		logger.Error("Client certificate of self-registered clusters cannot be used; the last one that could is used on, and without one "+
			"no cluster registers", "error", now.failure)
		return
	}
	logger.Info("Loaded client certificate of self-registered clusters")
	s.changed()
}

// access returns the certificate, or why there is none.
func (s *Source) access() (argocd.ClusterTLS, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.good == nil {
		return argocd.ClusterTLS{}, fmt.Errorf("shared certificate, Secret %s/%s of --self-registration-client-cert-secret: %w", s.options.Namespace, s.options.Name, s.failure)
	}
	return *s.good, nil
}

// read returns what a Secret has, or why it cannot be used. Whoever reads a cluster Secret has the key: it must not be that of an
// agent, or of a component, at the principal.
func (s *Source) read(data map[string][]byte) (argocd.ClusterTLS, error) {
	pair, err := secret.PairBlocks(data)
	if err != nil {
		return argocd.ClusterTLS{}, err
	}
	if _, err := tls.X509KeyPair(pair.Certificate, pair.Key); err != nil {
		return argocd.ClusterTLS{}, fmt.Errorf("its keys %s and %s: %w", secret.CertificateKey, secret.PrivateKeyKey, err)
	}
	if _, err := certs.ParseCertificates(data[secret.CAKey]); err != nil {
		return argocd.ClusterTLS{}, fmt.Errorf("its key %s, of the CA that kubeproxy's certificate comes from: %w", secret.CAKey, err)
	}
	chain, err := certs.ParseCertificates(pair.Certificate)
	if err != nil {
		return argocd.ClusterTLS{}, fmt.Errorf("its key %s: %w", secret.CertificateKey, err)
	}
	proof := identity.Certified(chain)
	if len(proof.URIs) != 1 || !strings.HasPrefix(proof.URIs[0], "spiffe://") {
		return argocd.ClusterTLS{}, errors.New("its certificate has no SPIFFE ID, by which kubeproxy would know it: issue it with one URI, such as " +
			"spiffe://argocd-agent/self-registered, and let it reach agents by kubeproxy's setting --callers")
	}
	if agent, err := s.options.Identify.AgentOf(proof); err == nil {
		return argocd.ClusterTLS{}, fmt.Errorf("its certificate is agent %s's by the setting --auth, and whoever reads a cluster Secret could be that agent: "+
			"issue it without a common name", agent)
	}
	if component := s.options.Identify.ComponentOf(proof); component != "" {
		return argocd.ClusterTLS{}, fmt.Errorf("its certificate is that of component %s: issue another", component)
	}
	if now := time.Now(); now.After(chain[0].NotAfter) {
		return argocd.ClusterTLS{}, fmt.Errorf("its certificate has expired on %s", chain[0].NotAfter.UTC().Format(time.RFC3339))
	}
	return argocd.ClusterTLS{Certificate: pair.Certificate, Key: pair.Key, CAData: data[secret.CAKey]}, nil
}
