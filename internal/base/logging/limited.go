package logging

import (
	"context"
	"log/slog"
	"time"

	"golang.org/x/time/rate"
)

// A limited logger writes so many lines at once, and then one in each interval.
const (
	limitedBurst    = 20
	limitedInterval = 5 * time.Second
)

// NewLimiter returns the limiter of lines that anybody can cause who reaches a port. Limited is simpler where nothing but the line depends
// on whether it is written.
func NewLimiter() *rate.Limiter { return rate.NewLimiter(rate.Every(limitedInterval), limitedBurst) }

// Limited returns a logger whose lines anybody can cause who reaches a port, such as those of failed TLS handshakes: of many only some are
// written.
func Limited(logger *slog.Logger) *slog.Logger {
	return slog.New(limited{logger.Handler(), NewLimiter()})
}

// limited is a slog.Handler that lets some lines pass.
type limited struct {
	slog.Handler

	limit *rate.Limiter
}

// Handle implements slog.Handler.
func (l limited) Handle(ctx context.Context, line slog.Record) error {
	if !l.limit.Allow() {
		return nil
	}
	return l.Handler.Handle(ctx, line)
}

// WithAttrs implements slog.Handler. The limit stays the same one.
func (l limited) WithAttrs(attrs []slog.Attr) slog.Handler {
	return limited{l.Handler.WithAttrs(attrs), l.limit}
}

// WithGroup implements slog.Handler.
func (l limited) WithGroup(name string) slog.Handler {
	return limited{l.Handler.WithGroup(name), l.limit}
}
