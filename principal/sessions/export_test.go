package sessions

import "context"

// Cancellable returns the context of a stream, as a server with ServerOptions gives it.
func Cancellable(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	return context.WithValue(ctx, cancelKey{}, cancel), cancel
}
