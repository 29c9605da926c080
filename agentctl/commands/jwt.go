package commands

import (
	"cmp"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/agents"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/certificate"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/signingkey"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/program"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/pki"
)

func jwtCommands(e *endpoints) *cobra.Command {
	return e.alsoNamespace(group(&cobra.Command{
		Use: "jwt", Short: "Keep the key that signs agents' bearer tokens, and issue them",
	}, createKeyCommand(e), inspectKeyCommand(e), deleteKeyCommand(e), issueTokenCommand(e)))
}

// tokenLifetime is how long a token is good if nothing else is said. Who has it has the agent's cluster, as far as a caller's certificate
// goes beside it.
const (
	tokenLifetime    = day
	maxTokenLifetime = 365 * day
)

func issueTokenCommand(e *endpoints) *cobra.Command {
	var lifetime time.Duration
	cmd := &cobra.Command{
		Use: "issue NAME", Short: "Issue a bearer token for an agent", Args: oneAgent,
		Long: `Issue a bearer token for an agent, and print it. kubeproxy takes whoever comes with it to that agent, if the certificate of the caller may
reach the agent of any token, or this one: see its setting --callers. A token cannot be withdrawn but with its key, or by blocking the agent.`,
		Example: "  argocd-agentctl jwt issue berlin --duration 8h",
		RunE: func(cmd *cobra.Command, args []string) error {
			if lifetime <= 0 || lifetime > maxTokenLifetime {
				return fmt.Errorf("--duration: %s: want how long the token is good, such as 8h, and %s at most: it cannot be withdrawn", lifetime, maxTokenLifetime)
			}
			hub, err := e.hub()
			if err != nil {
				return err
			}
			if _, err := agents.ParseName(hub, args[0]); err != nil {
				return err
			}
			issued, err := signingkey.Issue(cmd.Context(), hub, args[0], lifetime)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), issued)
			return err
		},
	}
	cmd.Flags().DurationVar(&lifetime, "duration", tokenLifetime, "how long the token is good")
	return cmd
}

func createKeyCommand(e *endpoints) *cobra.Command {
	var m issueFlags
	cmd := &cobra.Command{
		Use: "create-key", Short: "Create the key that signs agents' bearer tokens", Args: program.NoArguments,
		Long: "Create the key that signs agents' bearer tokens, in the Secret " + signingkey.SecretName + " on the hub. A good one stays.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			kind, err := m.key()
			if err != nil {
				return err
			}
			kind.Algorithm = cmp.Or(kind.Algorithm, pki.RSA)
			hub, err := e.hub()
			if err != nil {
				return err
			}
			return resultPrinter(cmd)(signingkey.Create(cmd.Context(), hub, kind, m.replace))
		},
	}
	m.declareUpsert(cmd)
	m.declareKey(cmd, "rsa if empty")
	m.declareForce(cmd)
	return cmd
}

func inspectKeyCommand(e *endpoints) *cobra.Command {
	var f format
	cmd := &cobra.Command{
		Use: "inspect-key", Short: "Show the keys that sign and verify agents' bearer tokens", Args: program.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			hub, err := e.hub()
			if err != nil {
				return err
			}
			about, err := signingkey.Inspect(cmd.Context(), hub)
			if err != nil {
				return err
			}
			return f.print(cmd, about, func(out io.Writer) {
				fmt.Fprintf(out, "Secret\t%s\nkey\t%s\ncreated\t%s\nSHA-256\t%s\n", about.Secret, about.Key(), certificate.Stamp(about.Created), about.SHA256)
				for _, id := range about.Verify {
					fmt.Fprintf(out, "verifies\t%s\n", id)
				}
			})
		},
	}
	f.declare(cmd)
	return cmd
}

func deleteKeyCommand(e *endpoints) *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use: "delete-key", Short: "Delete the keys that sign and verify agents' bearer tokens", Args: program.NoArguments,
		Long: "Delete the Secret " + signingkey.SecretName + " on the hub. Tokens of its keys are refused then.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			hub, err := e.hub()
			if err != nil {
				return err
			}
			found, err := signingkey.Find(cmd.Context(), hub)
			if err != nil {
				return err
			}
			if err := confirm(cmd, force, "Delete "+hub.Secret(found.Name)+"? All bearer tokens of agents are refused then.", "y"); err != nil {
				return err
			}
			return resultPrinter(cmd)(hub.Delete(cmd.Context(), found, "the signing key"))
		},
	}
	declareConfirmed(cmd, &force)
	return cmd
}
