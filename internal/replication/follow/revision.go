package follow

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// patience is how long Reach waits for a watch before it asks the API server whether there is anything to wait for.
const patience = 2 * time.Second

// Revision returns the newest revision of what the store shows, be it another's change or this program's own; 0 if it shows nothing.
// Revisions of one kind have an order: https://kubernetes.io/docs/reference/using-api/api-concepts/#resource-versions.
func (s *Store[R, T]) Revision() uint64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.newest
}

// Reach waits until the store shows every change up to a revision, which was Revision at another program that follows the same kind. An
// API server that has not come so far has been restored from a backup, or the revision is made up: then there is nothing to wait for.
// It fails, saying how far the watch has come, if the context ends before.
func (s *Store[R, T]) Reach(ctx context.Context, revision uint64) error {
	ask := time.NewTimer(patience)
	defer ask.Stop()
	for {
		moved := s.moved.Changed()
		shown := s.shownRevision()
		if shown >= revision {
			return nil
		}
		select {
		case <-moved:
		case <-ask.C:
			if now, err := s.askRevision(ctx); err == nil && now < revision {
				return nil
			}
			ask.Reset(patience)
		case <-ctx.Done():
			return fmt.Errorf("watch of %T: it has come to revision %d, and %d was seen before: %w", s.options.Kind, shown, revision, ctx.Err())
		}
	}
}

func (s *Store[R, T]) shownRevision() uint64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.shown
}

// askRevision asks the API server, not its cache, for its revision.
func (s *Store[R, T]) askRevision(ctx context.Context) (uint64, error) {
	list, err := s.options.List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return 0, err
	}
	about, err := meta.ListAccessor(list)
	if err != nil {
		return 0, err
	}
	return strconv.ParseUint(about.GetResourceVersion(), 10, 64)
}

// show notes up to which revision everything shows.
func (s *Store[R, T]) show(revision uint64) {
	s.mu.Lock()
	s.shown = max(s.shown, revision)
	s.mu.Unlock()
	s.moved.Give()
}
