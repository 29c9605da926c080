package logging

import (
	"context"
	"log/slog"
)

// handler lets lines pass by the level of the component that they come from.
type handler struct {
	slog.Handler // writes the lines

	levels  levels
	level   slog.Level // of this logger's component
	grouped bool       // attributes are inside a group: none of them names a component
}

func newHandler(inner slog.Handler, levels levels) *handler {
	return &handler{Handler: inner, levels: levels, level: levels.common}
}

// Enabled implements slog.Handler.
func (h *handler) Enabled(_ context.Context, level slog.Level) bool {
	return level >= h.level
}

// WithAttrs implements slog.Handler. A component that is named here decides the level of every line of the new handler.
func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	next := *h
	next.Handler = h.Handler.WithAttrs(attrs)
	for _, attr := range attrs {
		if attr.Key == ComponentKey && !h.grouped {
			next.level = h.levels.of(attr.Value.String())
		}
	}
	return &next
}

// WithGroup implements slog.Handler.
func (h *handler) WithGroup(name string) slog.Handler {
	next := *h
	next.Handler = h.Handler.WithGroup(name)
	next.grouped = h.grouped || name != ""
	return &next
}
