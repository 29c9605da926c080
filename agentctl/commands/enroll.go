package commands

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/agents"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/certificate"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/cluster"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/enrolltoken"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/argocd"
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
	var said clusterKeyFlags
	cmd := &cobra.Command{
		Use: "create NAME", Short: "Make an enrollment token for an agent", Args: oneAgent,
		Long: `Make a token by which one agent gets its first certificate of the principal (its --enrollment-port), and print it. The hub keeps a
hash of it in the Secret ` + enrolltoken.SecretName + `. It is good for one key, and for that agent; an older token of the agent is not good any more.
--label and --annotation are for the cluster Secret that a principal with --enable-self-cluster-registration makes. They replace those of an older
token, which stay if neither is given; --label= removes them.`,
		Example: `  argocd-agentctl agent token create berlin --ttl 2h --principal-context hub
  argocd-agentctl agent token create berlin --label env=prod,region=eu --annotation owner=team-a`,
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
			token, expires, err := newToken(cmd.Context(), hub, name, ttl, func(e *enrolltoken.Entry) error { return said.set(cmd, e) })
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "Enrollment token of agent %s, good until %s:\n", name, certificate.Stamp(expires))
			return printLine(cmd, "%s", token)
		},
	}
	said.declare(cmd)
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

// newToken makes a token of an agent, of which the hub keeps a hash, and returns it and when it ends. What was said of the agent's cluster with
// an older token stays, unless say, if it is not nil, says otherwise.
func newToken(ctx context.Context, hub *cluster.Client, name string, ttl time.Duration, say func(*enrolltoken.Entry) error,
) (text string, expires time.Time, err error) {
	token, expires := enrolltoken.New(identity.Agent(name)), time.Now().Add(ttl)
	entry := enrolltoken.NewEntry(token, expires)
	err = hub.ChangeSecret(ctx, enrolltoken.SecretName, func(data map[string][]byte) (err error) {
		older, _ := enrolltoken.Decode(data[name]) // what cannot be read says nothing
		entry.Labels, entry.Annotations = older.Labels, older.Annotations
		if say != nil {
			if err := say(&entry); err != nil {
				return err
			}
		}
		data[name], err = entry.Encode()
		return err
	})
	return token.Text(), expires, err
}

// clusterKeyFlags are what an operator says of an agent's cluster.
type clusterKeyFlags struct{ labels, annotations []string }

func (c *clusterKeyFlags) declare(cmd *cobra.Command) {
	cmd.Flags().StringSliceVarP(&c.labels, "label", "l", nil, "labels of the agent's cluster, as key=value, if it registers itself")
	cmd.Flags().StringArrayVar(&c.annotations, "annotation", nil, "an annotation of the agent's cluster, as key=value, if it registers itself; may be repeated")
}

// set puts into an entry what is given.
func (c *clusterKeyFlags) set(cmd *cobra.Command, entry *enrolltoken.Entry) error {
	given := func(pairs []string) []string {
		return slices.DeleteFunc(slices.Clone(pairs), func(pair string) bool { return pair == "" })
	}
	keys, err := argocd.ParseClusterKeys(given(c.labels), given(c.annotations))
	if err == nil {
		err = keys.Check()
	}
	if err != nil {
		return fmt.Errorf("--label, --annotation: %w", err)
	}
	if cmd.Flags().Changed("label") {
		entry.Labels = keys.Labels
	}
	if cmd.Flags().Changed("annotation") {
		entry.Annotations = keys.Annotations
	}
	return nil
}
