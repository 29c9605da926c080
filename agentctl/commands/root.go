// Package commands is what people type: commands, their flags, and what is printed. What the commands do is in the packages
// beside it.
package commands

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/program"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/settings"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/version"
)

// Name is what the tool is called.
const Name = "argocd-agentctl"

// New returns the command that all others are below.
func New(lookup program.Lookup) *cobra.Command {
	e := &endpoints{}
	root := group(&cobra.Command{
		Use:   Name,
		Short: "Set up a hub and its spokes: certificates, keys, and which agents there are",
	}, agentCommands(e), pkiCommands(e), jwtCommands(e), versionCommand())
	set := settings.New(root.PersistentFlags(), lookup)
	e.declare(set)
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error { return e.resolve(cmd, set) }
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

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Say which build this is", Args: program.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return say(cmd, "%s %s (%s)", Name, version.Version(), version.Revision())
		},
	}
}
