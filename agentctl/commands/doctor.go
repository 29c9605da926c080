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

// doctorFlags are those of doctor.
type doctorFlags struct {
	options doctor.Options
	side    string
	format  format
}

func doctorCommand(e *endpoints) *cobra.Command {
	var d doctorFlags
	cmd := &cobra.Command{
		Use: "doctor NAME", Short: "Walk every hop between the hub and an agent, and name the first that fails", Args: oneAgent,
		Long: `Walk every hop between the hub and an agent, from both sides, and name the first that fails with what to do about it: API servers, rights of
the programs, cluster Secret and certificates, DNS, TCP, TLS, identity and authorisation at the principal, stream, resync, the Kubernetes
API through the tunnel, and Redis: of the hub, redisproxy, of the agent's cluster, and through the tunnel, as argocd-server asks for them.
Nothing is changed. What cannot be looked at from here, or for want of your own rights, is skipped. If a hop fails, or a right is
missing, the exit code is 1.`,
		Example: `  argocd-agentctl doctor berlin --principal-context hub --agent-context berlin --principal-address hub.example.com:443
  argocd-agentctl doctor berlin --side hub
  argocd-agentctl doctor berlin --side spoke --agent-context berlin --principal-address hub.example.com:443`,
		RunE: func(cmd *cobra.Command, args []string) error { return d.run(cmd, e, args[0]) },
	}
	e.alsoNamespace(cmd)
	d.declare(cmd)
	return cmd
}

func (d *doctorFlags) declare(cmd *cobra.Command) {
	flags, o := cmd.Flags(), &d.options
	flags.StringVar(&d.side, "side", "", "hub, spoke or both: which clusters are asked; both with --agent-context or --agent, else the hub")
	flags.StringVar(&o.PrincipalAddress, "principal-address", "", "host:port of the principal, as the agent dials it")
	flags.StringVar(&o.ResourceProxy, "resource-proxy-server", "", "host:port of kubeproxy as it is reached from here; that of the cluster Secret if empty")
	for _, r := range d.redises() {
		r.declare(cmd)
	}
	flags.StringVar(&o.RedisKeyPrefix, "redis-key-prefix", "", "what the keys of the hub's Argo CD in Redis begin with; what the Deployment of argocd-server says if empty")
	flags.BoolVar(&o.ByDestination, "destination-based-mapping", false, "look for the rights of that mapping; so it is if the ConfigMap argocd-agent-params says so")
	flags.StringVar(&o.PrincipalUser, "principal-user", "", "user by which the hub's API server knows the principal; its ServiceAccount if empty")
	flags.StringVar(&o.AgentUser, "agent-user", "", "user by which its cluster's API server knows the agent; its ServiceAccount if empty")
	d.format.declare(cmd)
}

// redisFlags are those of one Redis.
type redisFlags struct {
	flag, what string
	into       *doctor.Redis
}

func (d *doctorFlags) redises() []redisFlags {
	return []redisFlags{
		{"principal-redis", "the hub's Redis", &d.options.PrincipalRedis}, {"agent-redis", "the Redis of the agent's cluster", &d.options.AgentRedis},
		{"redis-proxy", "redisproxy", &d.options.RedisProxy},
	}
}

func (r redisFlags) declare(cmd *cobra.Command) {
	cmd.Flags().StringVar(&r.into.Address, r.flag, "", "host:port of "+r.what+" as it is reached from here; a port of its Pods is forwarded if empty")
	cmd.Flags().Bool(r.flag+"-tls", false, "whether "+r.what+" speaks TLS; as the settings of its clients say if not given")
}

// take takes a flag that is true or false, if it was given.
func (r redisFlags) take(cmd *cobra.Command) {
	if name := r.flag + "-tls"; cmd.Flags().Changed(name) {
		value, err := cmd.Flags().GetBool(name)
		if err == nil { // it was declared as one
			r.into.TLS = &value
		}
	}
}

// check takes the flags, and refuses what cannot be right before anybody is asked.
func (d *doctorFlags) check(cmd *cobra.Command) error {
	addresses := map[string]string{"principal-address": d.options.PrincipalAddress, "resource-proxy-server": d.options.ResourceProxy}
	for _, r := range d.redises() {
		r.take(cmd)
		addresses[r.flag] = r.into.Address
	}
	for flag, address := range addresses {
		if address != "" && settings.HostPort(address) != nil {
			return fmt.Errorf("--%s: %q: want a host and a port, such as hub.example.com:443", flag, address)
		}
	}
	return nil
}

func (d *doctorFlags) run(cmd *cobra.Command, e *endpoints, agent string) error {
	if err := d.check(cmd); err != nil {
		return err
	}
	d.options.Agent = agent
	if err := e.sides(cmd, &d.options, d.side); err != nil {
		return err
	}
	asText := d.format != asJSON && d.format != asYAML
	progress := func(checks.Check) {}
	if asText && isTerminal(cmd.OutOrStdout()) {
		progress = func(c checks.Check) { checks.Print(cmd.OutOrStdout(), []checks.Check{c}, painter(cmd.OutOrStdout())) }
	}
	all := doctor.Examine(cmd.Context(), d.options, progress)
	if !asText || !isTerminal(cmd.OutOrStdout()) {
		if err := d.format.print(cmd, all, func(out io.Writer) { checks.Print(out, all, painter(cmd.OutOrStdout())) }); err != nil {
			return err
		}
	}
	if failed := doctor.First(all); failed != nil {
		return fmt.Errorf("agent %s: the first hop that fails: %s: %s", agent, failed.Name, failed.Problems[0])
	}
	if hidden := checks.FirstForbidden(all); hidden != nil {
		return fmt.Errorf("agent %s: no hop fails that you may look at, and not all were: %s: %s", agent, hidden.Name, hidden.Detail)
	}
	return nil
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
		o.Presence, o.PresenceRights = e.presence(cmd, o.Hub), e.metrics.Rights()
	}
	if side != hubSide {
		o.Spoke, err = e.spoke()
	}
	return err
}
