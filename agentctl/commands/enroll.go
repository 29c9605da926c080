package commands

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/agents"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/certificate"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/enrolltoken"
)

// How long an enrollment token may be good.
const (
	defaultTTL = time.Hour
	maxTTL     = 30 * day
)

func enrollmentCommands(e *endpoints) *cobra.Command {
	return group(&cobra.Command{
		Use: "token", Short: "Make the tokens by which agents get their first certificate",
	}, createTokenCommand(e))
}

func createTokenCommand(e *endpoints) *cobra.Command {
	var ttl time.Duration
	cmd := &cobra.Command{
		Use: "create NAME", Short: "Make an enrollment token for an agent", Args: oneAgent,
		Long: `Make a token by which one agent gets its first certificate of the principal (its --enrollment-port), and print it. The hub keeps a
hash of it in the Secret ` + enrolltoken.SecretName + `. It is good for one key, and for that agent; an older token of the agent is not good any more.`,
		Example: "  argocd-agentctl agent token create berlin --ttl 2h --principal-context hub",
		RunE: func(cmd *cobra.Command, args []string) error {
			if ttl < time.Minute || ttl > maxTTL {
				return fmt.Errorf("--ttl: %s: want 1m to %s", ttl, maxTTL)
			}
			hub, err := e.hub()
			if err != nil {
				return err
			}
			name, err := agents.ParseName(hub, args[0])
			if err != nil {
				return err
			}
			token, expires := enrolltoken.New(identity.Agent(name)), time.Now().Add(ttl)
			entry, err := enrolltoken.NewEntry(token, expires).Encode()
			if err != nil {
				return err
			}
			if err := hub.ChangeSecret(cmd.Context(), enrolltoken.SecretName, func(data map[string][]byte) error {
				data[name] = entry
				return nil
			}); err != nil {
				return err
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "Enrollment token of agent %s, good until %s:\n", name, certificate.Stamp(expires))
			return printLine(cmd, "%s", token.Text())
		},
	}
	cmd.Flags().DurationVar(&ttl, "ttl", defaultTTL, "how long the token is good; at most 720h")
	return cmd
}
