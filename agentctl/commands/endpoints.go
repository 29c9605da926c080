package commands

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/place"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/settings"
)

// Flags that say where the hub and the spoke are, and the variables that stand in for them.
const (
	principalContextFlag   = "principal-context"
	principalNamespaceFlag = "principal-namespace"
	agentContextFlag       = "agent-context"
	agentNamespaceFlag     = "agent-namespace"
	namespaceFlag          = "namespace"
	sameContextFlag        = "same-context"

	principalNamespaceVariable = "ARGOCD_AGENT_PRINCIPAL_NAMESPACE"
	agentNamespaceVariable     = "ARGOCD_AGENT_AGENT_NAMESPACE"
)

// endpoints is where the hub and the spoke are, as a person says.
type endpoints struct {
	kubeconfig                           string
	principalContext, principalNamespace string
	agentContext, agentNamespace         string
	namespace                            string // the principal's, by its other flag
}

// declare declares the flags that all commands have. A flag wins over its variable.
func (e *endpoints) declare(flags *pflag.FlagSet, lookup func(string) (string, bool)) {
	text := func(target *string, flag, variable, fallback, usage string) {
		if value, ok := lookup(variable); ok && value != "" {
			fallback = value
		}
		flags.StringVar(target, flag, fallback, usage+" [$"+variable+"]")
	}
	flags.StringVar(&e.kubeconfig, "kubeconfig", "", "kubeconfig file; what kubectl would use if empty")
	text(&e.principalContext, principalContextFlag, "ARGOCD_AGENT_PRINCIPAL_CONTEXT", "",
		"context of the hub's cluster in the kubeconfig; the current one if empty")
	text(&e.principalNamespace, principalNamespaceFlag, principalNamespaceVariable, "argocd",
		"namespace of the principal and Argo CD on the hub")
	text(&e.agentContext, agentContextFlag, "ARGOCD_AGENT_AGENT_CONTEXT", "",
		"context of the agent's cluster in the kubeconfig; the current one if empty")
	text(&e.agentNamespace, agentNamespaceFlag, agentNamespaceVariable, "argocd",
		"namespace of the agent on its cluster")
}

// alsoNamespace gives commands that concern the hub alone the flag that kubectl has for a namespace.
func (e *endpoints) alsoNamespace(cmd *cobra.Command) *cobra.Command {
	cmd.PersistentFlags().StringVarP(&e.namespace, namespaceFlag, "n", "", "the same as --"+principalNamespaceFlag)
	return cmd
}

// check refuses flags that cannot be right, before anything is asked of a cluster.
func (e *endpoints) check(cmd *cobra.Command) error {
	if e.namespace != "" {
		if cmd.Flags().Changed(principalNamespaceFlag) && e.principalNamespace != e.namespace {
			return fmt.Errorf("--%s is %s and --%s is %s, and both mean the same: set one", namespaceFlag, e.namespace,
				principalNamespaceFlag, e.principalNamespace)
		}
		e.principalNamespace = e.namespace
	}
	for _, c := range []struct{ flag, variable, value string }{
		{principalNamespaceFlag, principalNamespaceVariable, e.principalNamespace},
		{agentNamespaceFlag, agentNamespaceVariable, e.agentNamespace},
	} {
		if err := errors.Join(settings.NonEmpty(c.value), settings.DNSLabel(c.value)); err != nil {
			return fmt.Errorf("--%s or %s: %q: %w", c.flag, c.variable, c.value, err)
		}
	}
	return nil
}

// hub is where the principal is.
func (e *endpoints) hub() (*place.Place, error) {
	return place.Open(place.Options{
		Title: "the hub", Kubeconfig: e.kubeconfig, Context: e.principalContext, Namespace: e.principalNamespace,
		ContextFlag: "--" + principalContextFlag,
	})
}

// spoke is where the agent is.
func (e *endpoints) spoke() (*place.Place, error) {
	return place.Open(place.Options{
		Title: "the agent's cluster", Kubeconfig: e.kubeconfig, Context: e.agentContext, Namespace: e.agentNamespace,
		ContextFlag: "--" + agentContextFlag,
	})
}

// both is for commands that take something from the hub to a spoke. A person who forgets to say which spoke would have it
// done to the hub itself, when that is the current context: so a spoke on the hub's cluster has to be asked for.
func (e *endpoints) both(sameContext bool) (hub, spoke *place.Place, err error) {
	if sameContext {
		if e.agentContext != "" && e.agentContext != e.principalContext {
			return nil, nil, fmt.Errorf("--%s and --%s %s: set one", sameContextFlag, agentContextFlag, e.agentContext)
		}
		e.agentContext = e.principalContext
	}
	if hub, err = e.hub(); err != nil {
		return nil, nil, err
	}
	if spoke, err = e.spoke(); err != nil {
		return nil, nil, err
	}
	if !sameContext && (hub.Same(spoke) || hub.SameCluster(spoke) && e.agentContext == "") {
		return nil, nil, fmt.Errorf("the agent's cluster would be that of %s: say with --%s which it is, or that it is this one with --%s",
			hub, agentContextFlag, sameContextFlag)
	}
	return hub, spoke, nil
}
