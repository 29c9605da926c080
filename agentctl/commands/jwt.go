package commands

import (
	"cmp"

	"github.com/spf13/cobra"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/signingkey"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/program"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/pki"
)

func jwtCommands(e *endpoints) *cobra.Command {
	return e.alsoNamespace(group(&cobra.Command{
		Use: "jwt", Short: "Keep the key that signs agents' bearer tokens",
	}, createKeyCommand(e)))
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
	// An older spelling of --upsert.
	cmd.Flags().BoolVarP(&m.replace, forceFlag, "f", false, "the same as --upsert")
	return cmd
}
