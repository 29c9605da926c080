package settings

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// maxTypos is how many letters of a name may be wrong for a suggestion.
const maxTypos = 3

// owned are environment variables whose names have meant a setting of this program.
type owned struct {
	prefix string
	except []string
}

// Own says that environment variables which begin with the prefix, such as "ARGOCD_AGENT_", are settings of this program, except
// those that begin with one of the others. Resolve refuses the ones that are not: whoever sets a variable wants something, and
// a misspelt one would silently not be done, as a misspelt flag never is. A variable without a value counts as not set, and those
// by which Kubernetes tells a container of Services are no settings.
func (s *Set) Own(prefix string, except ...string) {
	s.owned = append(s.owned, owned{prefix, except})
}

// FlagError explains why these arguments cannot be parsed by these flags, which err says of the first wrong one; help is the command
// that lists the flags. All unknown flags and variables are reported. The flags are of no use afterwards.
func (s *Set) FlagError(flags *pflag.FlagSet, help string, err error, args []string) error {
	var names []string
	flags.VisitAll(func(flag *pflag.Flag) { names = append(names, flag.Name) })
	var problems []error
	for err != nil {
		hint, unknown := "see "+help, new(pflag.NotExistError)
		if !errors.As(err, &unknown) { // nothing is known of what comes after it
			problems = append(problems, fmt.Errorf("%w: %s", err, hint))
			break
		}
		if near := s.nearest(unknown.GetSpecifiedName(), names); near != "" {
			hint = "did you mean --" + near + "? See " + help
		}
		problems = append(problems, fmt.Errorf("%w: %s", err, hint))
		if !allow(flags, unknown) {
			break
		}
		err = flags.Parse(args)
	}
	return errors.Join(append(problems, s.unknownVariables()...)...)
}

// allow has flags take an unknown one, with a value or without, so that those after it are parsed. It reports whether it could: pflag
// panics at the definition of a shorthand that is not ASCII.
func allow(flags *pflag.FlagSet, unknown *pflag.NotExistError) bool {
	name, short := unknown.GetSpecifiedName(), ""
	if unknown.GetSpecifiedShortnames() != "" {
		name, short = "unknown shorthand "+name, name
	}
	if len(short) > 1 {
		return false
	}
	flags.StringP(name, short, "", "")
	flags.Lookup(name).NoOptDefVal = " "
	return true
}

// unknownVariables returns an error for each variable that is none of a setting.
func (s *Set) unknownVariables() []error {
	var known []string
	for _, one := range s.settings {
		known = append(known, one.variable)
	}
	services := serviceLinks(s.environment)
	var problems []error
	for _, variable := range slices.Sorted(maps.Keys(s.environment)) {
		if s.environment[variable] == "" || !s.owns(variable) || slices.Contains(known, variable) || isServiceLink(variable, services) {
			continue
		}
		hint := "remove it; --help lists the variables that there are"
		if near := s.nearest(variable, known); near != "" {
			hint = "did you mean " + near + "?"
		}
		problems = append(problems, fmt.Errorf("%s: no setting has this environment variable: %s", variable, hint)) // its value may be a secret
	}
	return problems
}

// owns reports whether a variable would have to be a setting.
func (s *Set) owns(variable string) bool {
	begins := func(prefix string) bool { return strings.HasPrefix(variable, prefix) }
	return slices.ContainsFunc(s.owned, func(o owned) bool {
		return begins(o.prefix) && !slices.ContainsFunc(o.except, begins)
	})
}

// nearest returns the name that differs least from what was typed, "" if none is like it. A flag or variable that turns off a
// protection is never suggested: it is not for whoever means something else.
func (s *Set) nearest(typed string, names []string) string {
	safe := func(name string) bool {
		return !slices.ContainsFunc(s.settings, func(one *setting) bool {
			return (one.flag.Name == name || one.variable == name) && strings.HasPrefix(one.flag.Usage, Insecure)
		}) && !strings.Contains(strings.ToLower(name), "insecure")
	}
	for typos := 1; typos <= maxTypos; typos++ {
		near := cobra.Command{SuggestionsMinimumDistance: typos}
		for _, name := range names {
			if name != "" && safe(name) {
				near.AddCommand(&cobra.Command{Use: name, Run: func(*cobra.Command, []string) {}})
			}
		}
		if found := near.SuggestionsFor(typed); len(found) > 0 {
			return found[0]
		}
	}
	return ""
}

// serviceLinks returns by which prefixes Kubernetes tells a container of the Services of its namespace: of one called
// argocd-agent-principal by ARGOCD_AGENT_PRINCIPAL, see "Discovering services" in its documentation.
func serviceLinks(environment map[string]string) []string {
	var prefixes []string
	for variable := range environment {
		if service, ok := strings.CutSuffix(variable, "_SERVICE_HOST"); ok && environment[service+"_SERVICE_PORT"] != "" {
			prefixes = append(prefixes, service)
		}
	}
	return prefixes
}

// isServiceLink reports whether a variable is about one of the services.
func isServiceLink(variable string, services []string) bool {
	return slices.ContainsFunc(services, func(service string) bool {
		rest, ok := strings.CutPrefix(variable, service)
		return ok && (rest == "_PORT" || strings.HasPrefix(rest, "_PORT_") || strings.HasPrefix(rest, "_SERVICE_"))
	})
}
