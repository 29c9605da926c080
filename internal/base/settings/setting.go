package settings

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/pflag"
)

// setting is one declared setting. It takes the place of its flag's value and accepts any text until it is resolved: pflag
// stops at the first value that is refused, and all problems are to be reported.
type setting struct {
	pflag.Value // sets the target

	flag     *pflag.Flag
	variable string
	check    func() error
	given    []string // by the flag, in order
}

// declare makes a setting of a flag, whose value is the target.
func declare[T any](s *Set, target *T, flag, variable string, checks []Check[T]) {
	f := s.flags.Lookup(flag)
	one := &setting{Value: f.Value, flag: f, variable: variable, check: func() error {
		for _, check := range checks {
			if err := check(*target); err != nil {
				return err
			}
		}
		return nil
	}}
	f.Value = one
	if variable != "" {
		f.Usage += " [" + variable + "]"
	}
	s.settings = append(s.settings, one)
}

// Set implements pflag.Value.
func (s *setting) Set(raw string) error {
	s.given = append(s.given, raw)
	return nil
}

// resolve sets the target and checks it.
func (s *setting) resolve(environment map[string]string) error {
	raw, from := s.flag.DefValue, "by default"
	if value := environment[s.variable]; value != "" && s.variable != "" {
		raw, from = value, "by environment"
	}
	if len(s.given) > 0 {
		raw, from = s.given[len(s.given)-1], "by flag"
		if _, ok := s.Value.(list); ok {
			raw = strings.Join(s.given, ",")
		}
	}
	err := s.Value.Set(raw)
	if err != nil {
		err = s.want(err)
	} else {
		err = s.check()
	}
	if err != nil {
		return fmt.Errorf("%s: %q (%s): %w", s.names(), raw, from, err)
	}
	return nil
}

// want says what would be right in place of text that is no value of this type.
func (s *setting) want(err error) error {
	switch s.Type() {
	case "int":
		return errors.New("want a whole number")
	case "bool":
		return errors.New("want true or false")
	case "duration":
		return errors.New("want a length of time with its unit, such as 30s or 5m")
	default:
		return err
	}
}

// names is what the setting is called on the command line and in the environment.
func (s *setting) names() string {
	if s.variable == "" {
		return "--" + s.flag.Name
	}
	return "--" + s.flag.Name + " or " + s.variable
}

// list is a flag's value with commas between. Unlike pflag's own lists it leaves out spaces around values, and empty ones,
// and has no quotes: "a, b," is a and b.
type list struct{ target *[]string }

// Set implements pflag.Value.
func (l list) Set(raw string) error {
	*l.target = nil
	for value := range strings.SplitSeq(raw, ",") {
		if value = strings.TrimSpace(value); value != "" {
			*l.target = append(*l.target, value)
		}
	}
	return nil
}

// String implements pflag.Value.
func (l list) String() string { return strings.Join(*l.target, ",") }

// Type implements pflag.Value.
func (l list) Type() string { return "strings" }
