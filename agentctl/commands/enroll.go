package commands

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/agents"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/certificate"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/cluster"
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
			if err := checkTTL("--ttl", ttl); err != nil {
				return err
			}
			hub, err := e.hub()
			if err != nil {
				return err
			}
			name, err := agents.ParseName(hub, args[0])
			if err != nil {
				return err
			}
			token, expires, err := newToken(cmd.Context(), hub, name, ttl)
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "Enrollment token of agent %s, good until %s:\n", name, certificate.Stamp(expires))
			return printLine(cmd, "%s", token)
		},
	}
	cmd.Flags().DurationVar(&ttl, "ttl", defaultTTL, "how long the token is good; at most 720h")
	return cmd
}

// checkTTL refuses tokens that are good for too long, or not long enough to be carried anywhere.
func checkTTL(flag string, ttl time.Duration) error {
	if ttl < time.Minute || ttl > maxTTL {
		return fmt.Errorf("%s: %s: want 1m to %s", flag, ttl, maxTTL)
	}
	return nil
}

// newToken makes a token of an agent, of which the hub keeps a hash, and returns it and when it ends.
func newToken(ctx context.Context, hub *cluster.Client, name string, ttl time.Duration) (text string, expires time.Time, err error) {
	token, expires := enrolltoken.New(identity.Agent(name)), time.Now().Add(ttl)
	entry, err := enrolltoken.NewEntry(token, expires).Encode()
	if err != nil {
		return "", expires, err
	}
	err = hub.ChangeSecret(ctx, enrolltoken.SecretName, func(data map[string][]byte) error {
		data[name] = entry
		return nil
	})
	return token.Text(), expires, err
}
