// Package commands is the command line of argocd-agentctl: commands, flags and output. What the commands do is in the
// packages beside it.
package commands

import (
	"fmt"
	"io"
	"runtime"
	"strings"

	"github.com/spf13/cobra"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/program"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/settings"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/version"
)

// Name is what the tool is called.
const Name = "argocd-agentctl"

// New returns the root command.
func New(environment []string) *cobra.Command {
	e := &endpoints{}
	root := group(&cobra.Command{
		Use:   Name,
		Short: "Set up a hub and its spokes: certificates, keys and agents",
	}, agentCommands(e), pkiCommands(e), redisCommands(e), jwtCommands(e), blocklistCommands(e), validateCommands(e), guardCommands(e), statusCommand(e), verifyCommand(e), doctorCommand(e), local(configCommands(e)), local(haCommands()), local(versionCommand()))
	program.AddVersion(root)
	set := settings.New(root.PersistentFlags(), environment)
	e.declare(set, homeIn(environment))
	program.ExplainFlags(root, set)
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error { return e.resolve(cmd, set) }
	return root
}

// local marks a command, and those below it, as one that asks no cluster: what is in the config file does not matter to it.
func local(cmd *cobra.Command) *cobra.Command {
	cmd.Annotations = map[string]string{withoutCluster: ""}
	for _, below := range cmd.Commands() {
		local(below)
	}
	return cmd
}

// homeIn returns the home directory that an environment names; empty if none.
func homeIn(environment []string) string {
	for _, variable := range environment {
		if home, ok := strings.CutPrefix(variable, "HOME="); ok {
			return home
		}
	}
	return ""
}

// group makes a command that has subcommands and does nothing by itself. An unknown subcommand is an error: cobra would show
// the help.
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

// oneAgent is for commands that take one argument, an agent's name.
func oneAgent(cmd *cobra.Command, args []string) error {
	switch len(args) {
	case 1:
		return nil
	case 0:
		return fmt.Errorf("%s: give the agent's name, as in: %s berlin", cmd.CommandPath(), cmd.CommandPath())
	default:
		return fmt.Errorf("%s takes the agent's name, and %q is one too many", cmd.CommandPath(), args[1])
	}
}

// build is which build this is.
type build struct {
	Name     string `json:"name"`
	Version  string `json:"version"`
	Revision string `json:"gitRevision"`
	Go       string `json:"goVersion"`
}

func versionCommand() *cobra.Command {
	var f format
	var indent bool
	cmd := &cobra.Command{
		Use: "version", Short: "Say which build this is", Args: program.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if indent {
				f = asJSON
			}
			about := build{Name, version.Version(), version.Revision(), runtime.Version()}
			return f.print(cmd, about, func(out io.Writer) { fmt.Fprintf(out, "%s %s (%s)\n", about.Name, about.Version, about.Revision) })
		},
	}
	cmd.Flags().BoolVarP(&indent, "indent", "i", false, "the same as --output json")
	f.declare(cmd)
	return cmd
}
