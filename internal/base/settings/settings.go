// Package settings declares what an operator decides about a program. Each setting is a flag and, with few exceptions, an
// environment variable. The flag wins over the variable, and the variable over the default. All values are checked once, at
// the start, and all problems are reported together. What a setting means is left to the package that it is for.
package settings

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// Set is the settings of one command.
type Set struct {
	flags       *pflag.FlagSet
	environment map[string]string
	owned       []owned
	settings    []*setting
	rules       []rule
}

// rule is a check over several settings.
type rule struct {
	flags []string
	check func() error
}

// New returns an empty set, which declares its settings as flags of the flag set. The environment has the variables, as
// os.Environ returns them.
func New(flags *pflag.FlagSet, environment []string) *Set {
	s := &Set{flags: flags, environment: make(map[string]string)}
	for _, variable := range environment {
		if name, value, ok := strings.Cut(variable, "="); ok {
			s.environment[name] = value
		}
	}
	return s
}

// Insecure is what the usage of a setting begins with that turns off a protection.
const Insecure = "INSECURE:"

// Check looks at a value. Its error says what would be right: "want a port, 1 to 65535".
type Check[T any] func(value T) error

// String declares a setting that is text. The flag may have a short form: "namespace,n".
//
// This holds for all kinds of settings: the target has the fallback at once, and the operator's value after Resolve. The
// variable may be empty when only the flag sets it. A variable that is set to nothing counts as not set, because that is
// what an empty key of a ConfigMap means.
func (s *Set) String(target *string, flag, variable, fallback, usage string, checks ...Check[string]) {
	name, shorthand, _ := strings.Cut(flag, ",")
	s.flags.StringVarP(target, name, shorthand, fallback, usage)
	declare(s, target, name, variable, checks)
}

// Strings declares a setting that is a list: values with commas between. The flag may be given again to add more.
func (s *Set) Strings(target *[]string, flag, variable string, fallback []string, usage string, checks ...Check[[]string]) {
	*target = fallback
	s.flags.Var(list{target}, flag, usage)
	declare(s, target, flag, variable, checks)
}

// Int declares a setting that is a whole number.
func (s *Set) Int(target *int, flag, variable string, fallback int, usage string, checks ...Check[int]) {
	s.flags.IntVar(target, flag, fallback, usage)
	declare(s, target, flag, variable, checks)
}

// Bool declares a switch. The bare flag turns it on.
func (s *Set) Bool(target *bool, flag, variable string, fallback bool, usage string) {
	s.flags.BoolVar(target, flag, fallback, usage)
	declare[bool](s, target, flag, variable, nil)
}

// Duration declares a setting that is a length of time, with its unit: 30s, 5m.
func (s *Set) Duration(target *time.Duration, flag, variable string, fallback time.Duration, usage string, checks ...Check[time.Duration]) {
	s.flags.DurationVar(target, flag, fallback, usage)
	declare(s, target, flag, variable, checks)
}

// Rule adds a check over the settings of these flags, such as a certificate that needs its key. It is called only when each
// of them is right by itself. Its error need not name them.
func (s *Set) Rule(check func() error, flags ...string) {
	s.rules = append(s.rules, rule{flags, check})
}

// Resolve takes each value from its flag, else from its variable, and checks all of them. Call it after the command line
// was parsed. Its error joins one error for each problem; do not use the targets then.
func (s *Set) Resolve() error {
	problems := s.unknownVariables()
	wrong := make(map[string]bool) // by flag
	for _, one := range s.settings {
		if err := one.resolve(s.environment); err != nil {
			problems = append(problems, err)
			wrong[one.flag.Name] = true
		}
	}
	for _, r := range s.rules {
		if slices.ContainsFunc(r.flags, func(flag string) bool { return wrong[flag] }) {
			continue
		}
		if err := r.check(); err != nil {
			problems = append(problems, fmt.Errorf("%s: %w", s.names(r.flags), err))
		}
	}
	return errors.Join(problems...)
}

// Given reports whether the operator decided about a setting, by its flag or its variable.
func (s *Set) Given(flag string) bool {
	at := slices.IndexFunc(s.settings, func(one *setting) bool { return one.flag.Name == flag })
	if at < 0 {
		return false
	}
	one := s.settings[at]
	return len(one.given) > 0 || one.variable != "" && s.environment[one.variable] != ""
}

// names lists what settings are called, each by its flag and its variable.
func (s *Set) names(flags []string) string {
	var names []string
	for _, one := range s.settings {
		if slices.Contains(flags, one.flag.Name) {
			names = append(names, one.names())
		}
	}
	return strings.Join(names, ", ")
}
