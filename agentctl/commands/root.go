// Package commands is what people type: commands, their flags, and what is printed. What the commands do is in the packages
// beside it.
package commands

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/program"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/version"
)

// Main runs one command and returns the exit code.
func Main(ctx context.Context, i program.Invocation) int {
	root := newRoot(i) //nolint:contextcheck // cobra hands the context over with the command
	root.SetArgs(i.Args)
	root.SetOut(i.Output)
	root.SetErr(i.Log)
	if err := root.ExecuteContext(ctx); err != nil {
		fmt.Fprintf(i.Log, "error: %v\n", err)
		return 1
	}
	return 0
}

// newRoot returns the command that all others are below.
func newRoot(i program.Invocation) *cobra.Command {
	e := &endpoints{}
	root := group(&cobra.Command{
		Use:           i.Name,
		Short:         "Set up a hub and its spokes: certificates, keys, and which agents there are",
		SilenceErrors: true, SilenceUsage: true,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error { return e.check(cmd) },
	}, agentCommands(e), pkiCommands(e), jwtCommands(e), versionCommand(i.Name))
	e.declare(root.PersistentFlags(), i.Lookup)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return fmt.Errorf("%w: see %s --help", err, cmd.CommandPath())
	})
	return root
}

// group makes a command that others are below, and that does nothing by itself. A word that is none of them is an error,
// which cobra would take for a wish for help.
func group(cmd *cobra.Command, below ...*cobra.Command) *cobra.Command {
	cmd.AddCommand(below...)
	cmd.SuggestionsMinimumDistance = 2
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
			return fmt.Errorf("%s %s: no such command; did you mean %s?", cmd.CommandPath(), args[0], strings.Join(near, " or "))
		}
		return fmt.Errorf("%s %s: no such command; %s --help lists them", cmd.CommandPath(), args[0], cmd.CommandPath())
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	return cmd
}

// nothing is for commands that take no words.
func nothing(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("%s takes no argument, and %q is one: see %s --help", cmd.CommandPath(), args[0], cmd.CommandPath())
	}
	return nil
}

// one is for commands that take one word, such as a name.
func one(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch len(args) {
		case 1:
			return nil
		case 0:
			return fmt.Errorf("%s: say %s, as in: %s berlin", cmd.CommandPath(), what, cmd.CommandPath())
		default:
			return fmt.Errorf("%s takes %s, and %q is one too many", cmd.CommandPath(), what, args[1])
		}
	}
}

func versionCommand(name string) *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Say which build this is", Args: nothing,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return say(cmd, "%s %s (%s)", name, version.Version(), version.Revision())
		},
	}
}
