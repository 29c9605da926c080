package program

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/settings"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/version"
)

// Settings are what an operator decides about a program.
type Settings interface {
	// Declare declares the settings.
	Declare(set *settings.Set)
}

// New returns the command of a program that runs until its context ends. It takes flags, and the environment's variables. Once all settings are right,
// run is called with the writer that takes the program's log.
func New[S Settings](name, short string, environment []string, s S, run func(ctx context.Context, s S, log io.Writer) error) *cobra.Command {
	cmd := &cobra.Command{Use: name, Short: short, Args: NoArguments}
	AddVersion(cmd)
	set := settings.New(cmd.Flags(), environment)
	s.Declare(set)
	ExplainFlags(cmd, set)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := set.Resolve(); err != nil {
			return err
		}
		return run(cmd.Context(), s, cmd.ErrOrStderr())
	}
	return cmd
}

// flagError is about flags that cannot be parsed. cobra does not say of which arguments.
type flagError struct {
	error

	explain func(args []string) error
}

// ExplainFlags has Main say what is wrong with flags of a command, and of those below it, that cannot be parsed.
func ExplainFlags(cmd *cobra.Command, set *settings.Set) {
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return &flagError{err, func(args []string) error { return set.FlagError(cmd.Flags(), cmd.CommandPath()+" --help", err, args) }}
	})
}

// AddVersion gives a command the flag --version.
func AddVersion(cmd *cobra.Command) {
	cmd.Version = fmt.Sprintf("%s (%s)", version.Version(), version.Revision())
	cmd.SetVersionTemplate("{{.Name}} {{.Version}}\n")
	cmd.Flags().Bool("version", false, "say which build this is") // in place of cobra's, which has a short form too
}

// NoArguments is for commands that take flags only.
func NoArguments(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("%s takes no argument, and %q is one: see %s --help", cmd.CommandPath(), args[0], cmd.CommandPath())
	}
	return nil
}

// Main runs a command with these arguments to its end, and returns the exit code.
func Main(ctx context.Context, cmd *cobra.Command, args []string) int {
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetArgs(append([]string{}, args...)) // never nil, which would stand for those of the process
	err := cmd.ExecuteContext(ctx)
	if wrong := new(flagError); errors.As(err, &wrong) {
		err = wrong.explain(args)
	}
	if err != nil {
		fmt.Fprintf(cmd.ErrOrStderr(), "error: %v\n", err)
		return 1
	}
	return 0
}
