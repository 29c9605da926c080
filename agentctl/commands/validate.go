package commands

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/checks"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/validate"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/program"
)

func validateCommands(e *endpoints) *cobra.Command {
	return group(&cobra.Command{
		Use: "validate", Aliases: []string{"check-config"}, Short: "Look whether a hub or an agent's cluster is set up as it should be",
	}, validatePrincipalCommand(e), validateAgentCommand(e))
}

func validatePrincipalCommand(e *endpoints) *cobra.Command {
	var f format
	cmd := &cobra.Command{
		Use: "principal", Short: "Look at the hub", Args: program.NoArguments,
		Long: "Look at the install scope of Argo CD, the CA, the certificates, the names by which the principal is published, the JWT signing key, stray\n" +
			"Applications, the components of Argo CD, the NetworkPolicies of Redis, and the agents' cluster Secrets.\n" +
			"If anything is wrong, the exit code is 1.",
		Example: "  argocd-agentctl validate principal --principal-context hub",
		RunE: func(cmd *cobra.Command, _ []string) error {
			hub, err := e.hub()
			if err != nil {
				return err
			}
			all, err := validate.Principal(cmd.Context(), hub)
			if err != nil {
				return err
			}
			return f.printChecks(cmd, "hub", all)
		},
	}
	f.declare(cmd)
	return cmd
}

func validateAgentCommand(e *endpoints) *cobra.Command {
	var f format
	var sameContext bool
	cmd := &cobra.Command{
		Use: "agent [NAME]", Short: "Look at an agent's cluster, and whether it fits the hub", Args: atMostOneAgent,
		Long: "Look at the hub, and then at the agent's certificates, the components of Argo CD and the NetworkPolicies of Redis on its cluster.\n" +
			"Without a name the certificate there says which agent it is.\n" +
			"If anything is wrong, the exit code is 1.",
		Example: "  argocd-agentctl validate agent --principal-context hub --agent-context berlin",
		RunE: func(cmd *cobra.Command, args []string) error {
			hub, spoke, err := e.both(sameContext)
			if err != nil {
				return err
			}
			all, err := validate.Principal(cmd.Context(), hub)
			if err != nil {
				return err
			}
			more, err := validate.Agent(cmd.Context(), hub, spoke, firstOf(args))
			if err != nil {
				return err
			}
			return f.printChecks(cmd, "hub and agent", append(all, more...))
		},
	}
	f.declare(cmd)
	declareSameContext(cmd, &sameContext)
	return cmd
}

// atMostOneAgent is for commands that take an agent's name, or none.
func atMostOneAgent(cmd *cobra.Command, args []string) error {
	if len(args) > 1 {
		return fmt.Errorf("%s takes one agent's name, and %q is one too many", cmd.CommandPath(), args[1])
	}
	return nil
}

func firstOf(args []string) string {
	if len(args) == 0 {
		return ""
	}
	return args[0]
}

// printChecks prints checks, and fails if any did.
func (f *format) printChecks(cmd *cobra.Command, where string, all []checks.Check) error {
	err := f.print(cmd, all, func(out io.Writer) { checks.Print(out, all, painter(cmd.OutOrStdout())) })
	if err = foundProblems(err, where, checks.Count(all)); err != nil {
		return err
	}
	if hidden := checks.FirstForbidden(all); hidden != nil {
		return fmt.Errorf("%s: nothing is wrong that you may look at, and not all was: %s: %s", where, hidden.Name, hidden.Detail)
	}
	return nil
}
