// Package settings reads what an operator decides about a program: each setting has one flag and one environment
// variable, the flag wins over the variable and the variable over the default. Everything is checked once, at the start,
// and everything that is wrong is said at once. What a setting means is left to the package that it is for.
package settings

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// ErrHelp is what Parse returns when the operator asked for help: print Set.Help and end well.
var ErrHelp = pflag.ErrHelp

// Set is the settings of one program. It is declared, parsed once, and then done with.
type Set struct {
	program  string
	lookup   func(variable string) (string, bool)
	settings []*setting
	rules    []rule
}

// rule is a check over several settings.
type rule struct {
	flags []string
	check func() error
}

// New returns an empty set for the program of that name. Environment variables are read through lookup, which main takes
// from the os package and a test from a map.
func New(program string, lookup func(variable string) (string, bool)) *Set {
	return &Set{program: program, lookup: lookup}
}

// Check looks at a value and says in its error what would be right: "want a port, 1 to 65535".
type Check[T any] func(value T) error

// String declares a setting that is text. In this and all that follow, the target holds the fallback at once and the
// operator's value after Parse, the variable may be empty when only the flag is to set it, and a variable that is set to
// nothing counts as not set, because that is what an empty key of a ConfigMap means.
func (s *Set) String(target *string, flag, variable, fallback, usage string, checks ...Check[string]) {
	declare(s, target, kind[string]{"string", parseString, formatString}, fallback,
		setting{flag: flag, variable: variable, usage: usage}, checks)
}

// Strings declares a setting that is a list: values with commas between, and the flag may be given again to add more.
func (s *Set) Strings(target *[]string, flag, variable string, fallback []string, usage string, checks ...Check[[]string]) {
	declare(s, target, kind[[]string]{"strings", parseStrings, formatStrings}, fallback,
		setting{flag: flag, variable: variable, usage: usage, list: true}, checks)
}

// Int declares a setting that is a whole number.
func (s *Set) Int(target *int, flag, variable string, fallback int, usage string, checks ...Check[int]) {
	declare(s, target, kind[int]{"int", parseInt, formatInt}, fallback,
		setting{flag: flag, variable: variable, usage: usage}, checks)
}

// Bool declares a switch. The bare flag turns it on.
func (s *Set) Bool(target *bool, flag, variable string, fallback bool, usage string) {
	declare(s, target, kind[bool]{"bool", parseBool, formatBool}, fallback,
		setting{flag: flag, variable: variable, usage: usage, bare: "true"}, nil)
}

// Duration declares a setting that is a length of time, with its unit: 30s, 5m.
func (s *Set) Duration(target *time.Duration, flag, variable string, fallback time.Duration, usage string, checks ...Check[time.Duration]) {
	declare(s, target, kind[time.Duration]{"duration", parseDuration, time.Duration.String}, fallback,
		setting{flag: flag, variable: variable, usage: usage}, checks)
}

// Shorthand gives a declared flag a short form of one letter: "namespace", "n".
func (s *Set) Shorthand(flag, letter string) {
	for _, declared := range s.settings {
		if declared.flag == flag {
			declared.shorthand = letter
			return
		}
	}
	s.Rule(func() error { return fmt.Errorf("-%s: stands for --%s, which is no flag", letter, flag) })
}

// Rule adds a check over the settings of these flags: a certificate needs its key. It is asked when each of these is right
// by itself, so that it need not think about bad ones.
func (s *Set) Rule(check func() error, flags ...string) {
	s.rules = append(s.rules, rule{flags, check})
}

// Names returns what declared settings are called, each by its flag and its variable, for the error of a Rule about them.
func (s *Set) Names(flags ...string) string {
	var names []string
	for _, flag := range flags {
		for _, declared := range s.settings {
			if declared.flag == flag {
				names = append(names, declared.names())
			}
		}
	}
	return strings.Join(names, ", ")
}

// Parse reads the arguments (without the program's name) and the environment, and fills the targets. Its error joins
// one error for each thing that is wrong; nothing should run on targets that come with an error.
func (s *Set) Parse(args []string) error {
	given, whole, problems := s.read(args)
	if errors.Is(errors.Join(problems...), ErrHelp) {
		return ErrHelp
	}
	wrong := make(map[string]bool) // by flag
	for _, declared := range s.settings {
		if err := declared.resolve(given[declared.flag], s.lookup); err != nil {
			problems = append(problems, err)
			wrong[declared.flag] = true
		}
	}
	if !whole {
		return errors.Join(problems...) // what a rule finds missing may be there
	}
	for _, r := range s.rules {
		if slices.ContainsFunc(r.flags, func(flag string) bool { return wrong[flag] }) {
			continue
		}
		if err := r.check(); err != nil {
			problems = append(problems, err)
		}
	}
	return errors.Join(problems...)
}

// Help describes every setting: its flag, what it is for, its default and its variable.
func (s *Set) Help() string {
	flags, _ := s.flagSet()
	return fmt.Sprintf("Usage: %s [flags]\n\n%s", s.program, flags.FlagUsages())
}
