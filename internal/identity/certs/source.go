package certs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/signal"
)

// Options says where a Source takes its material from. Pair or Roots may be left out, not both.
type Options struct {
	// Name is the Source's name in logs, metrics and errors, e.g. "principal".
	Name string
	// Pair holds our own certificate and key. PairHint says what to do when it is missing or bad,
	// e.g. "create it with: argocd-agentctl pki issue agent".
	Pair     Origin
	PairHint string
	// Roots holds the CAs that peers are verified against. RootsHint is like PairHint.
	Roots     Origin
	RootsHint string

	Logger *slog.Logger
	// Metrics may be nil.
	Metrics *Metrics
}

// Source holds the current certificate and trusted CAs. It is safe for concurrent use.
type Source struct {
	name    string
	logger  *slog.Logger
	metrics *Metrics
	parts   []*part
	ready   chan struct{} // closed once every part has been good

	changed signal.Broadcast // the material has changed

	mu sync.RWMutex // guards the mutable fields of parts
}

// Plaintext returns a Source without material: connections are not secured by us, since a proxy next to us does that.
func Plaintext(name string, logger *slog.Logger) *Source {
	s := &Source{name: name, logger: logger, metrics: NewMetrics(nil), ready: make(chan struct{})}
	close(s.ready)
	return s
}

// Plaintext reports whether connections are not secured by us.
func (s *Source) Plaintext() bool { return len(s.parts) == 0 }

// part is one half of a Source: the pair or the roots.
type part struct {
	name   string
	origin Origin
	hint   string
	parse  func(Blocks) (content, error)

	// Guarded by Source.mu.
	good    bool // content holds something
	content content
	digest  [32]byte // of the blocks that content was parsed from
	failure error    // why the latest report was not taken; nil when it was
}

// New returns a Source that has no material until Run has found it.
func New(options Options) (*Source, error) {
	if options.Name == "" || options.Logger == nil {
		return nil, errors.New("TLS certificates: a name and a logger are required")
	}
	s := &Source{
		name:    options.Name,
		logger:  options.Logger,
		metrics: options.Metrics,
		ready:   make(chan struct{}),
	}
	if s.metrics == nil {
		s.metrics = NewMetrics(nil)
	}
	if options.Pair != nil {
		s.parts = append(s.parts, &part{name: options.Name, origin: options.Pair, hint: options.PairHint, parse: parsePair})
	}
	if options.Roots != nil {
		s.parts = append(s.parts, &part{name: options.Name + "-ca", origin: options.Roots, hint: options.RootsHint, parse: parseRoots})
	}
	if len(s.parts) == 0 {
		return nil, fmt.Errorf("TLS certificates %q: neither a certificate nor trusted CAs are configured", options.Name)
	}
	for _, p := range s.parts {
		s.metrics.reloads.WithLabelValues(p.name, resultSuccess)
		s.metrics.reloads.WithLabelValues(p.name, resultFailure)
	}
	return s, nil
}

// Run follows the material until ctx ends, which is no error. It fails only when an origin cannot be watched at all;
// material that is missing or bad is waited for.
func (s *Source) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, p := range s.parts {
		group.Go(func() error {
			err := p.origin.Watch(ctx, func(blocks Blocks, err error) { s.report(p, blocks, err) })
			if err != nil {
				return fmt.Errorf("TLS certificates %q: watch %s: %w", p.name, p.origin, err)
			}
			return nil
		})
	}
	return group.Wait()
}

// Wait blocks until all of the material has been good once. When ctx ends before, the error says what is missing, where
// it was looked for, and what to do.
func (s *Source) Wait(ctx context.Context) error {
	select {
	case <-s.ready:
		return nil
	case <-ctx.Done():
		_, err := s.Current()
		if err == nil {
			return nil
		}
		return fmt.Errorf("wait for TLS certificates: %w: %w", context.Cause(ctx), err)
	}
}

// Ready returns nil when there is material that can be used now, and otherwise why there is not. What has expired is still there for
// Current: a clock may be wrong, and the peer says so.
func (s *Source) Ready() error {
	if _, err := s.Current(); err != nil {
		return err
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	var expired []error
	for _, p := range s.parts {
		if p.content.validAt(time.Now()) {
			continue
		}
		err := fmt.Errorf("TLS certificates %q: valid only from %s to %s", p.name, stamp(p.content.notBefore), stamp(p.content.notAfter))
		if p.failure != nil {
			err = fmt.Errorf("%w: %w", err, p.failure)
		}
		expired = append(expired, err)
	}
	return errors.Join(expired...)
}

// Current returns the newest good material, or, as long as some was never there, an error that says what is missing.
func (s *Source) Current() (Material, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var material Material
	var missing []error
	for _, p := range s.parts {
		switch {
		case !p.good && p.failure != nil:
			missing = append(missing, fmt.Errorf("TLS certificates %q: %w", p.name, p.failure))
		case !p.good:
			missing = append(missing, fmt.Errorf("TLS certificates %q: %s has not been read yet", p.name, p.origin))
		case p.content.pair != nil:
			material.Certificate = p.content.pair
		default:
			material.Roots, material.CAs, material.Bundles = p.content.roots, p.content.cas, p.content.bundles
		}
	}
	if len(missing) > 0 {
		return Material{}, errors.Join(missing...)
	}
	return material, nil
}

// Changed returns a channel that is closed when the material changes next. Ask for it before reading Current, so that
// no change goes unseen.
func (s *Source) Changed() <-chan struct{} {
	return s.changed.Changed()
}

// report takes in what the part's origin holds now.
func (s *Source) report(p *part, blocks Blocks, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.refuse(p, err)
		return
	}
	digest := blocks.digest()
	if p.good && digest == p.digest {
		if !errors.Is(p.failure, ErrDenied) { // which may come with every other attempt: list yes, watch no
			p.failure = nil
		}
		return
	}
	next, err := p.parse(blocks)
	if err != nil {
		s.refuse(p, err)
		return
	}
	now := time.Now()
	if p.good && p.content.validAt(now) && !next.validAt(now) {
		s.refuse(p, fmt.Errorf("valid only from %s to %s", stamp(next.notBefore), stamp(next.notAfter)))
		return
	}
	p.digest = digest
	s.accept(p, next, now)
}

// accept puts the content to use. s.mu is held.
func (s *Source) accept(p *part, next content, now time.Time) {
	first := !p.good
	p.good, p.content, p.failure = true, next, nil
	s.metrics.notAfter.WithLabelValues(p.name).Set(float64(next.notAfter.Unix()))
	if !first {
		s.metrics.reloads.WithLabelValues(p.name, resultSuccess).Inc()
	}
	log := s.logger.Info
	if !next.validAt(now) {
		log = s.logger.Warn
	}
	log("Loaded TLS certificates", "name", p.name, "from", p.origin.String(),
		"not_before", stamp(next.notBefore), "not_after", stamp(next.notAfter), "valid", next.validAt(now))
	s.changed.Give()
	if first && s.complete() {
		close(s.ready)
	}
}

// complete says whether every part has content. s.mu is held.
func (s *Source) complete() bool {
	for _, p := range s.parts {
		if !p.good {
			return false
		}
	}
	return true
}

// refuse keeps what the part has, and says so once per cause. s.mu is held.
func (s *Source) refuse(p *part, err error) {
	unreachable, denied := errors.Is(err, ErrUnreachable), errors.Is(err, ErrDenied)
	if p.good && unreachable {
		return
	}
	failure := fmt.Errorf("%s: %w", p.origin, err)
	if p.hint != "" && !unreachable && !denied {
		failure = fmt.Errorf("%w: %s", failure, p.hint)
	}
	repeated := p.failure != nil && (p.failure.Error() == failure.Error() ||
		slices.ContainsFunc([]error{ErrUnreachable, ErrDenied, ErrSilent}, func(kind error) bool { return errors.Is(err, kind) && errors.Is(p.failure, kind) }))
	p.failure = failure
	if repeated {
		return
	}
	if !p.good {
		s.logger.Warn("TLS certificates missing; waiting for them", "name", p.name, "error", failure)
		return
	}
	s.metrics.reloads.WithLabelValues(p.name, resultFailure).Inc()
	s.logger.Warn("Failed to reload TLS certificates; keeping the last good ones", "name", p.name, "error", failure,
		"not_after", stamp(p.content.notAfter))
}

// stamp formats a time as RFC 3339 in UTC.
func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }
