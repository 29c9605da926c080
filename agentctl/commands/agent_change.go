package commands

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/agents"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/cluster"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/settings"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/pki"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/argocd"
)

func reconfigureCommand(e *endpoints) *cobra.Command {
	var c createFlags
	var reissue bool
	cmd := &cobra.Command{
		Use: "reconfigure NAME", Short: "Change how Argo CD reaches an agent's cluster", Args: oneAgent,
		Long: "Change the Secret cluster-NAME: the address of the resource proxy, or Argo CD's client certificate for it. All else of it stays.",
		Example: `  argocd-agentctl agent reconfigure berlin --resource-proxy-server proxy.example.com:9090
  argocd-agentctl agent reconfigure berlin --reissue-client-cert`,
		RunE: func(cmd *cobra.Command, args []string) error {
			warnOfFormer(cmd)
			changes := agents.Changes{Proxy: c.proxy}
			renewed := reissue || c.sidecar || c.tlsSecret != "" || c.caSecret != ""
			if c.proxy == "" && !renewed {
				return errors.New("nothing to change: give --resource-proxy-server, --reissue-client-cert, --tls-from-secret or --no-client-cert")
			}
			if reissue && c.sidecar {
				return errors.New("--reissue-client-cert and --no-client-cert: set one")
			}
			if c.proxy != "" && settings.HostPort(c.proxy) != nil {
				return fmt.Errorf("--resource-proxy-server: %q: want a host and a port, such as %s", c.proxy, argocd.DefaultResourceProxy)
			}
			hub, err := e.hub()
			if err != nil {
				return err
			}
			if renewed {
				if changes.Access, err = c.access(cmd, e, hub); err != nil {
					return err
				}
			}
			return resultPrinter(cmd)(agents.Reconfigure(cmd.Context(), hub, args[0], changes))
		},
	}
	cmd.Flags().StringVar(&c.proxy, "resource-proxy-server", "", "new host:port of the resource proxy, as Argo CD on the hub reaches it")
	cmd.Flags().BoolVar(&reissue, "reissue-client-cert", false, "issue another client certificate for Argo CD")
	c.declareSources(cmd)
	c.declareCertificate(cmd, pki.LeafLifetime)
	declareFormer(cmd)
	return cmd
}

func deleteCommand(e *endpoints) *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use: "delete NAME", Short: "Remove an agent from the hub", Args: oneAgent,
		Long: `Delete the Secret cluster-NAME: neither Argo CD nor the principal knows the agent then, and its connections end. Its namespace on the
hub, with its Applications, stays, and so does what its cluster runs. A principal with --enable-self-cluster-registration makes the Secret again
when the agent connects again: agent block shuts it out.`,
		Example: "  argocd-agentctl agent delete berlin --force",
		RunE: func(cmd *cobra.Command, args []string) error {
			hub, found, err := e.find(cmd, args[0])
			if err != nil {
				return err
			}
			if err := confirm(cmd, force, "Delete "+hub.Secret(found.Name)+"?", args[0]); err != nil {
				return err
			}
			if argocd.IsSelfRegistered(found) {
				fmt.Fprintf(cmd.ErrOrStderr(), "warning: a principal made this Secret, and makes it again when the agent connects again: "+
					"to shut the agent out: argocd-agentctl agent block %s\n", args[0])
			}
			return resultPrinter(cmd)(agents.Delete(cmd.Context(), hub, found))
		},
	}
	declareConfirmed(cmd, &force)
	return cmd
}

// find returns the hub, and the cluster Secret that it has of an agent.
func (e *endpoints) find(cmd *cobra.Command, agent string) (*cluster.Client, *corev1.Secret, error) {
	hub, err := e.hub()
	if err != nil {
		return nil, nil, err
	}
	found, err := agents.Find(cmd.Context(), hub, agent)
	return hub, found, err
}

// declareConfirmed declares the flag by which nobody is asked again.
func declareConfirmed(cmd *cobra.Command, force *bool) {
	cmd.Flags().BoolVarP(force, forceFlag, "f", false, "do not ask for a confirmation")
}

func printTLSCommand(e *endpoints) *cobra.Command {
	var what string
	cmd := &cobra.Command{
		Use: "print-tls NAME", Aliases: []string{"dump-tls"}, Short: "Print Argo CD's client certificate for an agent, its key or the CA", Args: oneAgent,
		Long:    "Print what the Secret cluster-NAME has for TLS, as PEM: with --type key the private key.",
		Example: "  argocd-agentctl agent print-tls berlin --type ca",
		RunE: func(cmd *cobra.Command, args []string) error {
			choices := map[string]func(argocd.ClusterTLS) []byte{
				"cert": func(t argocd.ClusterTLS) []byte { return t.Certificate },
				"key":  func(t argocd.ClusterTLS) []byte { return t.Key },
				"ca":   func(t argocd.ClusterTLS) []byte { return t.CAData },
			}
			if choices[what] == nil {
				return fmt.Errorf("--type: %q: want one of %s", what, strings.Join(slices.Sorted(maps.Keys(choices)), ", "))
			}
			hub, found, err := e.find(cmd, args[0])
			if err != nil {
				return err
			}
			known, err := argocd.ReadCluster(found)
			text := choices[what](known.Access.TLS)
			if err == nil && len(text) == 0 {
				err = fmt.Errorf("it has no %s", what)
			}
			if err != nil {
				return fmt.Errorf("%s: %w", hub.Secret(found.Name), err)
			}
			_, err = cmd.OutOrStdout().Write(text)
			return err
		},
	}
	cmd.Flags().StringVarP(&what, "type", "t", "cert", "cert, key or ca")
	return cmd
}
