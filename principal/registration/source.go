package registration

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/signal"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/certs"
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
	// Metrics say when the certificate ends.
	Metrics *certs.Metrics
	Logger  *slog.Logger
}

// Source is the Secret of the client certificate that all self-registered clusters share. Of what cannot be used, the last one that can
// is used on, to its end.
type Source struct {
	options SourceOptions
	store   *follow.Store[*corev1.Secret, *loaded]
	changed func()
	passes  signal.Signal // there is another version, and another time at which to look at it

	mu      sync.Mutex
	newest  *loaded // version of the Secret; nil if there is none. Guarded by mu
	good    *shared // nil if there is none that can be used. Guarded by mu
	failure error   // why the newest version cannot be used. Guarded by mu
}

// loaded is a version of the Secret: what it has, or why it can never be used.
type loaded struct {
	revision string
	shared   *shared
	failure  error
}

// metricName is what the metrics of certificates call this one.
const metricName = "self-registration"

// NewSource returns a Source that knows nothing until a Registrar that has it runs.
func NewSource(o SourceOptions) *Source {
	s := &Source{options: o, failure: errMissing, changed: func() {}, passes: signal.New()}
	follows := follow.Secret[*loaded](o.Client, o.Namespace, o.Name)
	follows.Reduce = func(found *corev1.Secret, old *loaded) *loaded {
		if old != nil && old.revision == found.ResourceVersion {
			return old
		}
		now := &loaded{revision: found.ResourceVersion}
		now.shared, now.failure = read(found.Data)
		return now
	}
	follows.Changed = func(_, now *loaded) { s.take(now) }
	follows.Vanished = func([]*loaded) { s.take(nil) }
	s.store = follow.New(follows)
	return s
}

var errMissing = errors.New("not found")

// run follows the Secret until the context ends, and calls changed when there is another certificate. That must not block.
func (s *Source) run(ctx context.Context, changed func()) {
	s.changed = changed
	var work sync.WaitGroup
	work.Go(func() { s.followTime(ctx) })
	s.store.Run(ctx)
	work.Wait()
}

// followTime looks at the certificate again when it begins, and when it ends.
func (s *Source) followTime(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
			s.judge()
		case <-s.passes:
		}
		if next := s.next(); !next.IsZero() {
			timer.Reset(time.Until(next))
		}
	}
}

// next is when the answer of check changes by itself, for the newest certificate or the one in use; zero for never.
func (s *Source) next() (next time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []*shared
	if s.newest != nil {
		all = append(all, s.newest.shared)
	}
	now := time.Now()
	for _, one := range append(all, s.good) {
		if one == nil {
			continue
		}
		for _, at := range []time.Time{one.chain[0].NotBefore, one.end()} {
			if at.After(now) && (next.IsZero() || at.Before(next)) {
				next = at
			}
		}
	}
	return next
}

// take takes in a version of the Secret; nil if it is gone.
func (s *Source) take(now *loaded) {
	s.mu.Lock()
	s.newest = now
	s.mu.Unlock()
	s.judge()
	s.passes.Give()
}

// judge finds out which certificate is used from now on, and says so.
func (s *Source) judge() {
	s.mu.Lock()
	before := s.good
	switch {
	case s.newest == nil:
		s.failure = errMissing
	case s.newest.failure != nil:
		s.failure = s.newest.failure
	default:
		s.failure = s.check(s.newest.shared)
	}
	if s.failure == nil {
		s.good = s.newest.shared
		s.options.Metrics.Expires(metricName, s.good.end())
	} else if before != nil && s.check(before) != nil {
		s.good = nil
	}
	failure, good := s.failure, s.good
	s.mu.Unlock()
	logger := s.options.Logger.With("secret", s.options.Namespace+"/"+s.options.Name)
	switch {
	case failure == nil && good == before:
	case failure == nil:
		logger.Info("Loaded client certificate of self-registered clusters", "not_after", good.end().UTC().Format(time.RFC3339))
		s.changed()
	case good == nil:
		logger.Error("Client certificate of self-registered clusters cannot be used: no cluster registers until the Secret has another, and those that "+
			"have registered keep what they have", "error", failure)
	default:
		logger.Error("Client certificate of self-registered clusters cannot be used; the last one that could is used on", "error", failure)
	}
}

// access returns the certificate, or why there is none. It is looked at again: who is known by it may be another by now.
func (s *Source) access() (argocd.ClusterTLS, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.failure
	if s.good != nil {
		err = s.check(s.good)
	}
	if err != nil {
		return argocd.ClusterTLS{}, fmt.Errorf("shared certificate, Secret %s/%s of --self-registration-client-cert-secret: %w", s.options.Namespace, s.options.Name, err)
	}
	return s.good.tls, nil
}
