// Package logging builds the program's logger from what an operator asks for: a format, a level, and other levels for
// single components. Who logs what is decided elsewhere; loggers are passed to constructors.
package logging

import (
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
)

// ComponentKey is the attribute that says which part of the program a line comes from.
const ComponentKey = "component"

// The formats of a line.
const (
	Text = "text"
	JSON = "json"
)

// Options is what an operator decides about logs.
type Options struct {
	// Levels lists entries of the form [component=]level. The one without a component holds for all that are not named;
	// info, when there is none. Of two entries for the same thing the last one holds.
	Levels []string
	// Format is Text or JSON; empty is Text.
	Format string
	// Output takes the lines, one Write for each.
	Output io.Writer
}

// New returns the program's logger. Its error says what would be right.
func New(options Options) (*slog.Logger, error) {
	levels, err := parseLevels(options.Levels)
	if err != nil {
		return nil, err
	}
	inner := &slog.HandlerOptions{Level: levels.lowest()}
	switch options.Format {
	case Text, "":
		return slog.New(newHandler(slog.NewTextHandler(options.Output, inner), levels)), nil
	case JSON:
		return slog.New(newHandler(slog.NewJSONHandler(options.Output, inner), levels)), nil
	default:
		return nil, fmt.Errorf("log format %q: want one of %s, %s", options.Format, Text, JSON)
	}
}

// Component returns the logger of one part of the program, which has the level that the operator gave to that part.
func Component(logger *slog.Logger, name string) *slog.Logger {
	return logger.With(ComponentKey, name)
}

// CheckLevels says whether New would take the levels.
func CheckLevels(levels []string) error {
	_, err := parseLevels(levels)
	return err
}

// levels is the level of everything, and those of components that have their own.
type levels struct {
	common    slog.Level
	component map[string]slog.Level
}

func parseLevels(entries []string) (levels, error) {
	parsed := levels{common: slog.LevelInfo, component: map[string]slog.Level{}}
	for _, entry := range entries {
		component, name, named := strings.Cut(entry, "=")
		if !named {
			name = entry
		}
		level, ok := parseLevel(name)
		if !ok || (named && component == "") {
			return levels{}, fmt.Errorf("log level %q: want [component=]level, the level one of trace, debug, info, warn, error", entry)
		}
		if named {
			parsed.component[component] = level
		} else {
			parsed.common = level
		}
	}
	return parsed, nil
}

// parseLevel knows trace as another name of debug: there are lines that one may want to see, and no third kind of them.
func parseLevel(name string) (slog.Level, bool) {
	switch strings.ToLower(name) {
	case "trace", "debug":
		return slog.LevelDebug, true
	case "info":
		return slog.LevelInfo, true
	case "warn":
		return slog.LevelWarn, true
	case "error":
		return slog.LevelError, true
	default:
		return 0, false
	}
}

// of returns the level of a component.
func (l levels) of(component string) slog.Level {
	if level, ok := l.component[component]; ok {
		return level
	}
	return l.common
}

// lowest returns the level that lets every line pass that some component wants.
func (l levels) lowest() slog.Level {
	return slices.Min(append(slices.Collect(maps.Values(l.component)), l.common))
}
