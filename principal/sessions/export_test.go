package sessions

import "context"

// Cancellable returns the context of a stream, as a server with ServerOptions gives it.
func Cancellable(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	return context.WithValue(ctx, cancelKey{}, cancel), cancel
}

// Serving reports whether Run has begun and the context has not ended.
func (s *Service) Serving() bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.serving
}

// Budgets returns how many agents' budgets are remembered.
func (s *Service) Budgets() int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return len(s.budgets)
}
