// Package settingstest checks the flags of a program in tests.
package settingstest

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/settings"
)

// Environ returns variables as os.Environ does.
func Environ(variables map[string]string) []string {
	var all []string
	for name, value := range variables {
		all = append(all, name+"="+value)
	}
	return all
}

// Parse resolves settings from an environment and a command line.
func Parse(declare func(*settings.Set), environment map[string]string, args ...string) error {
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	set := settings.New(flags, Environ(environment))
	declare(set)
	if err := flags.Parse(args); err != nil {
		return err
	}
	return set.Resolve()
}

// Flag says which values a flag takes.
type Flag struct {
	// Want is what the error about a bad value says.
	Want      string
	Bad, Good []string
}

// Program is the flags of a program.
type Program struct {
	// Declare declares the settings anew.
	Declare func(*settings.Set)
	// Required are arguments without which nothing is right.
	Required []string
	// Flags are those that take not just any text. Switches may be left out.
	Flags map[string]Flag
	// Any are those that take any text.
	Any []string
	// NoVariable are those without an environment variable.
	NoVariable []string
}

// Check requires that every flag is known here, has a variable, and refuses bad values from both with an error that names
// the flag, the variable and what would be right.
func Check(t *testing.T, p Program) {
	t.Helper()
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	p.Declare(settings.New(flags, nil))
	suffix := regexp.MustCompile(` \[([A-Z_]+)\]$`)
	flags.VisitAll(func(flag *pflag.Flag) {
		variable := strings.Trim(suffix.FindString(flag.Usage), " []")
		require.Equal(t, variable == "", slices.Contains(p.NoVariable, flag.Name), "--%s: its variable is %q", flag.Name, variable)
		c, known := p.Flags[flag.Name]
		if flag.Value.Type() == "bool" {
			c, known = Flag{Want: "want true or false", Bad: []string{"perhaps"}}, true
		}
		require.NotEqual(t, known, slices.Contains(p.Any, flag.Name), "--%s: want it in one of Flags and Any", flag.Name)
		p.checkFlag(t, flag.Name, variable, c)
	})
	for flag := range p.Flags {
		require.NotNil(t, flags.Lookup(flag), "--%s", flag)
	}
}

func (p Program) checkFlag(t *testing.T, flag, variable string, c Flag) {
	t.Helper()
	args := slices.DeleteFunc(slices.Clone(p.Required), func(arg string) bool { return strings.HasPrefix(arg, "--"+flag+"=") })
	for _, value := range c.Bad {
		err := Parse(p.Declare, nil, append(args, "--"+flag+"="+value)...)
		require.ErrorContains(t, err, "--"+flag, value)
		require.ErrorContains(t, err, c.Want, value)
		if variable == "" || value == "" { // an empty variable counts as not set
			continue
		}
		err = Parse(p.Declare, map[string]string{variable: value}, args...)
		require.ErrorContains(t, err, "--"+flag+" or "+variable, value)
		require.ErrorContains(t, err, c.Want, value)
	}
	for _, value := range c.Good {
		require.NoError(t, Parse(p.Declare, nil, append(args, "--"+flag+"="+value)...), value)
	}
}

// Help requires that a command's help is what testdata/help.txt has.
func Help(t *testing.T, cmd *cobra.Command) {
	t.Helper()
	var output bytes.Buffer
	cmd.SetOut(&output)
	cmd.SetArgs([]string{"--help"})
	require.NoError(t, cmd.ExecuteContext(t.Context()))
	path := filepath.Join("testdata", "help.txt")
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(want), output.String(), "if this is meant: go run . --help > %s", path)
}
