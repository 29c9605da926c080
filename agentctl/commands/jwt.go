package commands

import (
	"cmp"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/certificate"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/signingkey"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/program"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/pki"
)

func jwtCommands(e *endpoints) *cobra.Command {
	return e.alsoNamespace(group(&cobra.Command{
		Use: "jwt", Short: "Keep the key that signs agents' bearer tokens",
	}, createKeyCommand(e), inspectKeyCommand(e), deleteKeyCommand(e)))
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
