package commands

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/agents"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/cluster"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/comparison"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/localconfig"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/principals"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/settings"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/facets"
)

// verifyFlags are those of verify.
type verifyFlags struct {
	format        format
	byDestination bool
	selector      string
	wait          time.Duration
}

func verifyCommand(e *endpoints) *cobra.Command {
	var v verifyFlags
	cmd := &cobra.Command{
		Use: "verify [NAME]...", Short: "Compare agents' clusters with the hub, object by object", Args: cobra.ArbitraryArgs,
		Long: `Compare agents' clusters with the hub, object by object, and show what differs: Applications, AppProjects, repositories, credentials and GPG
keys. Nothing is changed, and no program is asked, but the API servers only. If anything differs, the exit code is 1.

The cluster of an agent is that of its name in the config file; for one agent it may be given by --agent-context. Without a name all agents
of the hub that the config file has are compared.`,
		Example: `  argocd-agentctl verify berlin --principal-context hub --agent-context berlin
  argocd-agentctl verify --principal main`,
		RunE: func(cmd *cobra.Command, args []string) error { return v.run(cmd, e, args) },
	}
	e.alsoNamespace(cmd)
	cmd.Flags().BoolVar(&v.byDestination, "destination-based-mapping", false, "the principal and the agents have this setting")
	cmd.Flags().StringVar(&v.selector, "label-selector", "", "the same as of the principal and the agents")
	cmd.Flags().DurationVar(&v.wait, "wait", 30*time.Second, "how long hub and agent may take to become equal, as what changes meanwhile is under way")
	v.format.declare(cmd)
	return cmd
}

func (v *verifyFlags) run(cmd *cobra.Command, e *endpoints, names []string) error {
	o := comparison.Options{ByDestination: v.byDestination, Wait: v.wait}
	var err error
	if err := settings.AtLeast(time.Second)(v.wait); err != nil {
		return fmt.Errorf("--wait: %w", err)
	}
	if o.Selector, err = facets.ParseSelector(v.selector); err != nil {
		return fmt.Errorf("--label-selector: %w", err)
	}
	hub, err := e.hub()
	if err != nil {
		return err
	}
	all, err := agents.List(cmd.Context(), hub, "", func() principals.Presence { return principals.Presence{} })
	if err != nil {
		return err
	}
	compared, err := e.spokes(hub, all, names)
	if err != nil {
		return err
	}
	results, problems, different := []comparison.Result{}, []error{}, 0
	for i, one := range compared {
		fmt.Fprintf(cmd.ErrOrStderr(), "comparing agent %s (%d of %d)\n", one.agent.Name, i+1, len(compared))
		result, err := comparison.Compare(cmd.Context(), hub, one.spoke, one.agent, o)
		if err != nil {
			problems = append(problems, err)
			continue
		}
		results = append(results, result)
		different += len(result.Differences)
	}
	if err := v.format.print(cmd, results, func(out io.Writer) { printDifferences(out, results) }); err != nil {
		return err
	}
	return errors.Join(append(problems, foundProblems(nil, "hub and agents differ", different))...)
}

// site is an agent with its cluster.
type site struct {
	agent agents.Agent
	spoke *cluster.Client
}

// spokes returns the agents to compare, with their clusters.
func (e *endpoints) spokes(hub *cluster.Client, all []agents.Agent, names []string) ([]site, error) {
	file, err := localconfig.Load(e.config)
	if err != nil {
		return nil, err
	}
	if len(names) == 0 {
		for i := range all {
			if _, ok := file.Contexts.Agents[all[i].Name]; ok {
				names = append(names, all[i].Name)
			}
		}
		if len(names) == 0 {
			return nil, fmt.Errorf("give an agent's name with --%s, or add the agents to the config file: none of it is an agent of %s", agentContextFlag, hub)
		}
	}
	if len(names) > 1 && e.agentContext != "" {
		return nil, fmt.Errorf("--%s is of one agent, and %d are to be compared", agentContextFlag, len(names))
	}
	var sites []site
	for _, name := range names {
		at := slices.IndexFunc(all, func(a agents.Agent) bool { return a.Name == name })
		if at < 0 {
			return nil, fmt.Errorf("agent %s: %s does not know it: list all agents with: argocd-agentctl agent list", name, hub)
		}
		own := *e
		if e.agentContext == "" {
			known, err := file.Agent(name)
			if err != nil {
				return nil, fmt.Errorf("agent %s: give --%s, or its context by the config file: %w", name, agentContextFlag, err)
			}
			own.agentContext, own.agentNamespace = known.Context, known.Namespace
		}
		spoke, err := own.spoke()
		if err != nil {
			return nil, err
		}
		if hub.Same(spoke) {
			return nil, fmt.Errorf("agent %s: its cluster would be that of %s: choose another with --%s", name, hub, agentContextFlag)
		}
		sites = append(sites, site{all[at], spoke})
	}
	return sites, nil
}

func printDifferences(out io.Writer, results []comparison.Result) {
	for _, r := range results {
		state := "equal"
		if len(r.Differences) > 0 {
			state = fmt.Sprintf("differences: %d", len(r.Differences))
		}
		if r.Unmanaged > 0 {
			state += fmt.Sprintf("; %d objects there are nobody's copies", r.Unmanaged)
		}
		fmt.Fprintf(out, "agent %s (%s): %s\n", r.Agent, r.Mode, state)
		for _, d := range r.Differences {
			fmt.Fprintf(out, "  %s\t%s\t%s\n", d.Facet, d.Key, d.What)
		}
	}
}
