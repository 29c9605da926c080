package commands

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/checks"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/cluster"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/doctor"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/localconfig"
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
		Use: "doctor [NAME]", Short: "Walk every hop between the hub and its agents, and name the first that fails", Args: atMostOneAgent,
		Long: `Walk every hop between the hub and an agent, from both sides, and name the first that fails with what to do about it: API servers, rights of
the programs, cluster Secret and certificates, DNS, TCP, TLS, identity and authorisation at the principal, stream, resync, the Kubernetes
API through the tunnel, and Redis: of the hub, redisproxy, of the agent's cluster, and through the tunnel, as argocd-server asks for them.
Nothing is changed. What cannot be looked at from here, or for want of your own rights, is skipped. If a hop fails, or a right is
missing, the exit code is 1. In a Pod, as helm test runs it, the cluster is the Pod's own.

Without a name the hops of the hub are walked, and then those of every agent that the hub knows: a line says how each is, and with --output wide
all hops are shown. With --side both the clusters of those agents are asked too that the config file has, with --side spoke only these.`,
		Example: `  argocd-agentctl doctor berlin --principal-context hub --agent-context berlin --principal-address hub.example.com:443
  argocd-agentctl doctor berlin --side hub
  argocd-agentctl doctor berlin --side spoke --agent-context berlin --principal-address hub.example.com:443
  argocd-agentctl doctor --principal-context hub`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := d.check(cmd); err != nil {
				return err
			}
			if len(args) == 0 {
				return d.all(cmd, e)
			}
			return d.one(cmd, e, args[0])
		},
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

// one examines an agent.
func (d *doctorFlags) one(cmd *cobra.Command, e *endpoints, agent string) error {
	d.options.Agent = agent
	side, err := e.side(d.side)
	if err != nil {
		return err
	}
	if here := side == spokeSide && cluster.InPod(e.kubeconfig); side != hubSide && e.agentContext == "" && !here {
		return errors.New("--side " + side + ": give the agent's cluster by --" + agentContextFlag + " or --" + agentFlag)
	}
	if err := d.hub(cmd, e, side); err != nil {
		return err
	}
	if side != hubSide {
		if d.options.Spoke, err = e.spoke(); err != nil {
			return err
		}
	}
	all := doctor.Examine(cmd.Context(), d.options, d.progress(cmd))
	if err := d.show(cmd, all, all); err != nil {
		return err
	}
	return verdict("agent "+agent, all)
}

// all examines all agents.
func (d *doctorFlags) all(cmd *cobra.Command, e *endpoints) error {
	if e.agentContext != "" || d.options.AgentRedis.Address != "" {
		return fmt.Errorf("%s: give the agent's name: --%s, --%s and --agent-redis are of one agent", cmd.CommandPath(), agentContextFlag, agentFlag)
	}
	side, err := e.side(d.side)
	if err != nil {
		return err
	}
	if err := d.hub(cmd, e, side); err != nil {
		return err
	}
	var spokes map[string]*cluster.Client
	if side != hubSide {
		if spokes, err = e.knownSpokes(); err != nil {
			return fmt.Errorf("--side %s: %w", side, err)
		}
	}
	tell := d.progress(cmd)
	var shown []checks.Check
	all := doctor.ExamineAll(cmd.Context(), d.options, spokes, func(made []checks.Check) {
		if made[0].Agent != "" && d.format != asWide {
			made = []checks.Check{doctor.Summary(made)}
		}
		for _, c := range made {
			tell(c)
		}
		shown = append(shown, made...)
	})
	if err := d.show(cmd, all, shown); err != nil {
		return err
	}
	return verdict("hub and agents", all)
}

// asText reports whether checks are shown to a person.
func (d *doctorFlags) asText() bool { return d.format != asJSON && d.format != asYAML }

// progress returns what shows each check to a person on a terminal once it was made.
func (d *doctorFlags) progress(cmd *cobra.Command) func(checks.Check) {
	if !d.asText() || !isTerminal(cmd.OutOrStdout()) {
		return func(checks.Check) {}
	}
	return func(c checks.Check) { checks.Print(cmd.OutOrStdout(), []checks.Check{c}, painter(cmd.OutOrStdout())) }
}

// show prints checks that progress has not shown: all to programs, and some to people.
func (d *doctorFlags) show(cmd *cobra.Command, all, shown []checks.Check) error {
	if d.asText() && isTerminal(cmd.OutOrStdout()) {
		return nil
	}
	return d.format.print(cmd, all, func(out io.Writer) { checks.Print(out, shown, painter(cmd.OutOrStdout())) })
}

// verdict is the error of a walk on which a hop failed, or was not looked at for want of rights.
func verdict(who string, all []checks.Check) error {
	if failed := doctor.First(all); failed != nil {
		return fmt.Errorf("%s: the first hop that fails: %s: %s", of(who, failed), failed.Name, failed.Problems[0])
	}
	if hidden := checks.FirstForbidden(all); hidden != nil {
		return fmt.Errorf("%s: no hop fails that you may look at, and not all were: %s: %s", of(who, hidden), hidden.Name, hidden.Detail)
	}
	return nil
}

// of says whom a check is about, if it says so.
func of(who string, c *checks.Check) string {
	if c.Agent != "" {
		return "agent " + c.Agent
	}
	return who
}

// side returns which clusters are examined.
func (e *endpoints) side(side string) (string, error) {
	if side == "" {
		side = hubSide
		if e.agentContext != "" {
			side = bothSides
		}
	}
	if err := settings.OneOf(hubSide, spokeSide, bothSides)(side); err != nil {
		return "", fmt.Errorf("--side: %q: %w", side, err)
	}
	return side, nil
}

// hub sets the hub, unless it is not examined.
func (d *doctorFlags) hub(cmd *cobra.Command, e *endpoints, side string) (err error) {
	if side == spokeSide {
		return nil
	}
	if d.options.Hub, err = e.hub(); err != nil {
		return err
	}
	d.options.Presence, d.options.PresenceRights = e.presence(cmd, d.options.Hub), e.metrics.Rights()
	return nil
}

// knownSpokes returns the clusters of the agents that the config file has.
func (e *endpoints) knownSpokes() (map[string]*cluster.Client, error) {
	file, err := localconfig.Load(e.config)
	if err != nil {
		return nil, err
	}
	spokes := make(map[string]*cluster.Client)
	for name, known := range file.Contexts.Agents {
		own := *e
		own.agentContext, own.agentNamespace = known.Context, known.Namespace
		if spokes[name], err = own.spoke(); err != nil {
			return nil, fmt.Errorf("agent %s: %w", name, err)
		}
	}
	if len(spokes) == 0 {
		return nil, fmt.Errorf("the config file has no agents: add them by argocd-agentctl config add agent, or give one's name with --%s", agentContextFlag)
	}
	return spokes, nil
}
