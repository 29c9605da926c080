package commands

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/agents"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/cluster"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/program"
)

// blocklistCommands are argocd-agent's own commands for the list that agent block and unblock keep.
func blocklistCommands(e *endpoints) *cobra.Command {
	return e.alsoNamespace(group(&cobra.Command{
		Use: "blocklist", Short: "Keep the list of whom the hub shuts out",
	}, group(&cobra.Command{
		Use: "tls", Short: "Keep the blocklist: certificates by their fingerprints, and whatever agent block has added",
	}, fingerprintCommand(e, "add", "Shut out a certificate by its SHA-256 fingerprint, as argocd-agentctl agent block --fingerprint does",
		func(cmd *cobra.Command, hub *cluster.Client, entry agents.Entry) (cluster.Result, error) {
			return agents.Block(cmd.Context(), hub, entry, "")
		}),
		fingerprintCommand(e, "remove", "Let a certificate in again, as argocd-agentctl agent unblock --fingerprint does",
			func(cmd *cobra.Command, hub *cluster.Client, entry agents.Entry) (cluster.Result, error) {
				return agents.Unblock(cmd.Context(), hub, entry)
			}),
		blocklistListCommand(e))))
}

// fingerprintCommand makes a command that does something about a certificate.
func fingerprintCommand(e *endpoints, name, short string,
	do func(*cobra.Command, *cluster.Client, agents.Entry) (cluster.Result, error),
) *cobra.Command {
	return &cobra.Command{
		Use: name + " FINGERPRINT", Short: short,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return fmt.Errorf("%s: give one fingerprint, as argocd-agentctl agent inspect shows it", cmd.CommandPath())
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			entry, err := agents.BlockCertificate(args[0])
			if err != nil {
				return err
			}
			hub, err := e.hub()
			if err != nil {
				return err
			}
			return resultPrinter(cmd)(do(cmd, hub, entry))
		},
	}
}

func blocklistListCommand(e *endpoints) *cobra.Command {
	var f format
	cmd := &cobra.Command{
		Use: "list", Short: "List whom the hub shuts out", Args: program.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			hub, err := e.hub()
			if err != nil {
				return err
			}
			all, unreadable, err := agents.ListBlocked(cmd.Context(), hub)
			if err != nil {
				return err
			}
			if err := f.print(cmd, all, func(out io.Writer) { printBlocked(out, all) }); err != nil {
				return err
			}
			return unreadable
		},
	}
	f.declare(cmd)
	return cmd
}

func printBlocked(out io.Writer, all []agents.Blocked) {
	if len(all) == 0 {
		fmt.Fprintln(out, "nobody is blocked")
		return
	}
	fmt.Fprintln(out, "BLOCKED\tNOTE")
	for _, one := range all {
		fmt.Fprintf(out, "%s\t%s\n", one.Key, one.Note)
	}
}
