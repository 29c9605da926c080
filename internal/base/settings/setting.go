package settings

import (
	"fmt"
	"strings"
)

// setting is one declared setting, whatever its kind.
type setting struct {
	flag, shorthand, variable, usage string

	kind     string // for help
	fallback string // for help
	bare     string // what the flag without a value means; empty when it needs one
	list     bool   // the flag may be given again, to add

	// accept parses, checks and stores a value; its error says what would be right. acceptFallback does so for the
	// default.
	accept         func(raw string) error
	acceptFallback func() error
}

// kind is how one type of value is read and shown.
type kind[T any] struct {
	name   string
	parse  func(raw string) (T, error)
	format func(value T) string
}

// declare adds a setting of the kind, and gives its target the default at once.
func declare[T any](s *Set, target *T, of kind[T], fallback T, d setting, checks []Check[T]) {
	store := func(value T) error {
		for _, check := range checks {
			if err := check(value); err != nil {
				return err
			}
		}
		*target = value
		return nil
	}
	*target = fallback
	d.kind, d.fallback = of.name, of.format(fallback)
	d.acceptFallback = func() error { return store(fallback) }
	d.accept = func(raw string) error {
		value, err := of.parse(raw)
		if err != nil {
			return err
		}
		return store(value)
	}
	s.settings = append(s.settings, &d)
}

// resolve takes the value from where it has been given: the flag, else the variable, else the default.
func (d *setting) resolve(given []string, lookup func(string) (string, bool)) error {
	if len(given) > 0 {
		raw := given[len(given)-1]
		if d.list {
			raw = strings.Join(given, ",")
		}
		return d.problem(raw, "by flag", d.accept(raw))
	}
	if d.variable != "" {
		if raw, ok := lookup(d.variable); ok && raw != "" {
			return d.problem(raw, "by environment", d.accept(raw))
		}
	}
	return d.problem(d.fallback, "by default", d.acceptFallback())
}

// problem makes an error complete: both names of the setting, the value, where it came from, and what would be right.
func (d *setting) problem(raw, origin string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %q (%s): %w", d.names(), raw, origin, err)
}

// names is what the setting is called on the command line and in the environment.
func (d *setting) names() string {
	if d.variable == "" {
		return "--" + d.flag
	}
	return "--" + d.flag + " or " + d.variable
}

// help is the usage with the variable named.
func (d *setting) help() string {
	if d.variable == "" {
		return d.usage
	}
	return fmt.Sprintf("%s [%s]", d.usage, d.variable)
}
