package settings

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// given holds what the command line says, unread, in the order in which it says it.
type given map[string][]string

// value receives one flag. It never refuses, so that pflag reads on to the end and every problem is found.
type value struct {
	declared *setting
	given    given
}

func (v value) String() string { return v.declared.fallback }

func (v value) Type() string { return v.declared.kind }

func (v value) Set(raw string) error {
	v.given[v.declared.flag] = append(v.given[v.declared.flag], raw)
	return nil
}

// flagSet declares the flags, and returns the map that parsing them will fill.
func (s *Set) flagSet() (*pflag.FlagSet, given) {
	flags := pflag.NewFlagSet(s.program, pflag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.Usage = func() {}
	taken := given{}
	for _, declared := range s.settings {
		flag := flags.VarPF(value{declared, taken}, declared.flag, declared.shorthand, declared.help())
		flag.NoOptDefVal = declared.bare
	}
	return flags, taken
}

// read takes the command line apart. pflag stops at a flag that it does not know; that one is then noted and left out, and
// the rest read again, until all of it is. Of a command line that cannot be read to its end it returns what is before.
func (s *Set) read(args []string) (taken given, whole bool, problems []error) {
	for {
		flags, fresh := s.flagSet()
		err := flags.Parse(args)
		taken = fresh
		if unknown, ok := errors.AsType[*pflag.NotExistError](err); ok {
			problems = append(problems, s.unknownFlag(unknown))
			args = without(args, unknown)
			continue
		}
		if err != nil {
			return taken, false, append(problems, err)
		}
		for _, stray := range flags.Args() {
			problems = append(problems, fmt.Errorf("argument %q: want flags only, and a switch as --flag=%s", stray, stray))
		}
		return taken, true, problems
	}
}

// unknownFlag names the flag that was probably meant.
func (s *Set) unknownFlag(unknown *pflag.NotExistError) error {
	if letters := unknown.GetSpecifiedShortnames(); letters != "" {
		return fmt.Errorf("-%s: no such flag", letters)
	}
	name := unknown.GetSpecifiedName()
	nearest, distance := "", len(name)/2+1
	for _, declared := range s.settings {
		if d := editDistance(name, declared.flag); d < distance {
			nearest, distance = declared.flag, d
		}
	}
	if nearest == "" {
		return fmt.Errorf("--%s: no such flag; --help lists them", name)
	}
	return fmt.Errorf("--%s: no such flag; did you mean --%s?", name, nearest)
}

// without returns the arguments less the unknown flag, and less what looks like its value.
func without(args []string, unknown *pflag.NotExistError) []string {
	flag := "--" + unknown.GetSpecifiedName()
	if letters := unknown.GetSpecifiedShortnames(); letters != "" {
		flag = "-" + letters
	}
	at := slices.IndexFunc(args, func(arg string) bool {
		name, _, _ := strings.Cut(arg, "=")
		return name == flag || arg == flag
	})
	if at < 0 {
		return nil // not as pflag reports it: stop reading
	}
	end := at + 1
	if args[at] == flag && end < len(args) && !strings.HasPrefix(args[end], "-") {
		end++
	}
	return slices.Delete(slices.Clone(args), at, end)
}

// editDistance counts the letters to insert, remove or replace to make one word of the other.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost = 1 + min(diagonal, row[j], row[j+1])
			}
			diagonal, row[j+1] = row[j+1], cost
		}
	}
	return row[len(b)]
}
