package commands

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/checks"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/doctor"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/settings"
)

// Sides that doctor examines.
const (
	bothSides = "both"
	hubSide   = "hub"
	spokeSide = "spoke"
)

func doctorCommand(e *endpoints) *cobra.Command {
	var f format
	var o doctor.Options
	var side string
	cmd := &cobra.Command{
		Use: "doctor NAME", Short: "Walk every hop between the hub and an agent, and name the first that fails", Args: oneAgent,
		Long: `Walk every hop between the hub and an agent, from both sides, and name the first that fails with what to do about it: API servers, rights of
the programs, cluster Secret and certificates, DNS, TCP, TLS, identity and authorisation at the principal, stream, resync, and the Kubernetes
API and Redis through the tunnel, as argocd-server asks for them. Nothing is changed. What cannot be looked at from here is skipped.
If a hop fails, the exit code is 1.`,
		Example: `  argocd-agentctl doctor berlin --principal-context hub --agent-context berlin --principal-address hub.example.com:443
  argocd-agentctl doctor berlin --side hub
  argocd-agentctl doctor berlin --side spoke --agent-context berlin --principal-address hub.example.com:443`,
		RunE: func(cmd *cobra.Command, args []string) error {
			for flag, address := range map[string]string{
				"principal-address": o.PrincipalAddress, "resource-proxy-server": o.ResourceProxy, "redis-proxy": o.RedisProxy,
			} {
				if address != "" && settings.HostPort(address) != nil {
					return fmt.Errorf("--%s: %q: want a host and a port, such as hub.example.com:443", flag, address)
				}
			}
			o.Agent = args[0]
			if err := e.sides(cmd, &o, side); err != nil {
				return err
			}
			progress := func(checks.Check) {}
			if isTerminal(cmd.OutOrStdout()) && f != asJSON && f != asYAML {
				progress = func(c checks.Check) { checks.Print(cmd.OutOrStdout(), []checks.Check{c}, painter(cmd.OutOrStdout())) }
			}
			all := doctor.Examine(cmd.Context(), o, progress)
			var err error
			if !isTerminal(cmd.OutOrStdout()) || f == asJSON || f == asYAML {
				err = f.print(cmd, all, func(out io.Writer) { checks.Print(out, all, painter(cmd.OutOrStdout())) })
			}
			if failed := doctor.First(all); failed != nil && err == nil {
				err = fmt.Errorf("agent %s: the first hop that fails: %s: %s", o.Agent, failed.Name, failed.Problems[0])
			}
			return err
		},
	}
	e.alsoNamespace(cmd)
	flags := cmd.Flags()
	flags.StringVar(&side, "side", "", "hub, spoke or both: which clusters are asked; both with --agent-context or --agent, else the hub")
	flags.StringVar(&o.PrincipalAddress, "principal-address", "", "host:port of the principal, as the agent dials it")
	flags.StringVar(&o.ResourceProxy, "resource-proxy-server", "", "host:port of kubeproxy as it is reached from here; that of the cluster Secret if empty")
	flags.StringVar(&o.RedisProxy, "redis-proxy", "", "host:port of redisproxy as it is reached from here, without TLS")
	flags.BoolVar(&o.ByDestination, "destination-based-mapping", false, "look for the rights of that mapping; so it is if the ConfigMap argocd-agent-params says so")
	flags.StringVar(&o.PrincipalUser, "principal-user", "", "user by which the hub's API server knows the principal; its ServiceAccount if empty")
	flags.StringVar(&o.AgentUser, "agent-user", "", "user by which its cluster's API server knows the agent; its ServiceAccount if empty")
	f.declare(cmd)
	return cmd
}

// sides sets which clusters are examined.
func (e *endpoints) sides(cmd *cobra.Command, o *doctor.Options, side string) error {
	if side == "" {
		side = hubSide
		if e.agentContext != "" {
			side = bothSides
		}
	}
	if err := settings.OneOf(hubSide, spokeSide, bothSides)(side); err != nil {
		return fmt.Errorf("--side: %q: %w", side, err)
	}
	if side != hubSide && e.agentContext == "" {
		return errors.New("--side " + side + ": give the agent's cluster by --" + agentContextFlag + " or --" + agentFlag)
	}
	var err error
	if side != spokeSide {
		if o.Hub, err = e.hub(); err != nil {
			return err
		}
		o.Presence = e.presence(cmd, o.Hub)
	}
	if side != hubSide {
		o.Spoke, err = e.spoke()
	}
	return err
}
