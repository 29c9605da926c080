package commands

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/agents"
)

// blockFlags are the flags that say whom to block, if not an agent by its name.
type blockFlags struct{ fingerprint, id string }

func (b *blockFlags) declare(cmd *cobra.Command) {
	cmd.Flags().StringVar(&b.fingerprint, "fingerprint", "", "SHA-256 fingerprint of one certificate, instead of an agent's name")
	cmd.Flags().StringVar(&b.id, "spiffe-id", "", "SPIFFE ID, or another URI, of certificates, instead of an agent's name")
}

// entry returns whom the arguments and flags name.
func (b *blockFlags) entry(args []string) (agents.Entry, error) {
	given := len(args)
	for _, flag := range []string{b.fingerprint, b.id} {
		if flag != "" {
			given++
		}
	}
	switch {
	case given != 1:
		return agents.Entry{}, errors.New("give one of an agent's name, --fingerprint and --spiffe-id")
	case b.fingerprint != "":
		entry, err := agents.BlockCertificate(b.fingerprint)
		return entry, named("--fingerprint", err)
	case b.id != "":
		entry, err := agents.BlockURI(b.id)
		return entry, named("--spiffe-id", err)
	default:
		return agents.BlockAgent(args[0])
	}
}

// named says which flag an error is about.
func named(flag string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", flag, err)
}

func blockCommand(e *endpoints) *cobra.Command {
	var b blockFlags
	var reason string
	cmd := &cobra.Command{
		Use: "block [NAME]", Short: "Shut out an agent or a certificate", Args: cobra.ArbitraryArgs,
		Long: `Add an agent's name, a certificate's fingerprint or a SPIFFE ID to the hub's blocklist, the ConfigMap argocd-agent-tls-blocklist.
The principal and the resource proxy follow it: within seconds all connections of whoever is blocked end, and new ones are refused.
A name blocks all certificates of that agent, those too that are issued later. What the agent's cluster runs stays.`,
		Example: `  argocd-agentctl agent block berlin --reason "its key was stolen"
  argocd-agentctl agent block --fingerprint 37a6ef554045c3acf088e85a4ca577a06587d9592013e613349c797401e8d983
  argocd-agentctl agent block --spiffe-id spiffe://example.org/ns/argocd/sa/berlin`,
		RunE: func(cmd *cobra.Command, args []string) error {
			entry, err := b.entry(args)
			if err != nil {
				return err
			}
			hub, err := e.hub()
			if err != nil {
				return err
			}
			return resultPrinter(cmd)(agents.Block(cmd.Context(), hub, entry, reason))
		},
	}
	b.declare(cmd)
	cmd.Flags().StringVar(&reason, "reason", "", "a note that is kept with it")
	return cmd
}

func unblockCommand(e *endpoints) *cobra.Command {
	var b blockFlags
	cmd := &cobra.Command{
		Use: "unblock [NAME]", Short: "Let in again what was blocked", Args: cobra.ArbitraryArgs,
		Long:    "Take an agent's name, a certificate's fingerprint or a SPIFFE ID from the hub's blocklist. The agent connects again by itself.",
		Example: "  argocd-agentctl agent unblock berlin",
		RunE: func(cmd *cobra.Command, args []string) error {
			entry, err := b.entry(args)
			if err != nil {
				return err
			}
			hub, err := e.hub()
			if err != nil {
				return err
			}
			return resultPrinter(cmd)(agents.Unblock(cmd.Context(), hub, entry))
		},
	}
	b.declare(cmd)
	return cmd
}
