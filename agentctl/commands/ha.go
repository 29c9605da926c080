package commands

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/program"
)

// allActive is what there is to say of one principal that stands in for another.
const allActive = "every principal of a hub is active: none waits for another one to fail, and agents go to another by themselves"

// haCommands are argocd-agent's for a primary and a replica, so that a script that has them goes on.
func haCommands() *cobra.Command {
	command := func(use, short string, answer func(cmd *cobra.Command) error) *cobra.Command {
		cmd := &cobra.Command{
			Use: use, Short: short, Args: program.NoArguments, RunE: func(cmd *cobra.Command, _ []string) error { return answer(cmd) },
		}
		cmd.Flags().String("address", "", "does nothing: no principal is asked")
		cmd.Flags().String("timeout", "", "does nothing: no principal is asked")
		return cmd
	}
	say := func(cmd *cobra.Command) error {
		return printLine(cmd, "%s; argocd-agentctl status shows which agent is at which", allActive)
	}
	promote := command("promote", "Say that there is nothing to do: every principal is active", say)
	promote.Flags().Bool("force", false, "does nothing")
	return group(&cobra.Command{
		Use: "ha", Short: "Say how principals stand in for each other", Hidden: true,
	}, command("status", "Say that every principal of a hub is active", say), promote,
		command("demote", "Say how a principal is taken away", func(*cobra.Command) error {
			return errors.New(allActive + ": to take one away, delete its Pod, or lower the replicas of its Deployment")
		}))
}
