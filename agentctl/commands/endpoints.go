package commands

import (
	"fmt"
	"io"
	"net/url"

	"github.com/spf13/cobra"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/ca"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/cluster"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/localconfig"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/principals"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/settings"
)

// Flags that say where the hub and the spoke are.
const (
	principalContextFlag   = "principal-context"
	principalNamespaceFlag = "principal-namespace"
	agentContextFlag       = "agent-context"
	agentNamespaceFlag     = "agent-namespace"
	namespaceFlag          = "namespace"
	configFlag             = "config"
	principalFlag          = "principal"
	agentFlag              = "agent"
	sameContextFlag        = "same-context"
)

// endpoints are the flags that say where the hub and the spoke are.
type endpoints struct {
	kubeconfig                           string
	principalContext, principalNamespace string
	agentContext, agentNamespace         string
	config                               string // the file of package localconfig
	principal, agent                     string // names in it
	namespace                            string // the principal's, by its other flag
	metrics                              principals.Access
	caNamespace                          string // of the CA's private key; one of its own beside the principal's if empty
}

// declare declares the flags that all commands have.
func (e *endpoints) declare(set *settings.Set, home string) {
	set.Own("ARGOCD_AGENT_PRINCIPAL_")
	set.Own("ARGOCD_AGENT_AGENT_")
	set.String(&e.kubeconfig, "kubeconfig", "", "", "kubeconfig file; what kubectl would use if empty")
	set.String(&e.config, configFlag, "", localconfig.DefaultPath(home), "file with names for principals and agents, which argocd-agentctl config keeps")
	set.String(&e.principal, principalFlag, "", "", "name of the principal in that file, in place of its context and namespace; its default one if empty")
	set.String(&e.agent, agentFlag, "", "", "name of the agent in that file, in place of its context and namespace")
	set.String(&e.principalContext, principalContextFlag, "ARGOCD_AGENT_PRINCIPAL_CONTEXT", "",
		"context of the hub's cluster in the kubeconfig; the current one if empty")
	set.String(&e.principalNamespace, principalNamespaceFlag, "ARGOCD_AGENT_PRINCIPAL_NAMESPACE", "argocd",
		"namespace of the principal and Argo CD on the hub", settings.NonEmpty, settings.DNSLabel)
	set.String(&e.caNamespace, "ca-namespace", "ARGOCD_AGENT_CA_NAMESPACE", "",
		"namespace on the hub that holds the CA with its private key, where the principal may read nothing; the principal's with "+caSuffix+" if empty",
		settings.DNSLabel)
	set.Strings(&e.metrics.Addresses, "principal-metrics", "ARGOCD_AGENT_PRINCIPAL_METRICS", nil,
		"where all principals serve /metrics, to ask which agents are connected, such as http://10.0.0.1:8000; the pods of Service "+
			principals.Service+", through the API server, if empty", metricsAddresses)
	e.declareMetrics(set)
	set.String(&e.agentContext, agentContextFlag, "ARGOCD_AGENT_AGENT_CONTEXT", "",
		"context of the agent's cluster in the kubeconfig; the current one if empty")
	set.String(&e.agentNamespace, agentNamespaceFlag, "ARGOCD_AGENT_AGENT_NAMESPACE", "argocd",
		"namespace of the agent on its cluster", settings.NonEmpty, settings.DNSLabel)
}

// declareMetrics declares what the principals' metrics may ask for.
func (e *endpoints) declareMetrics(set *settings.Set) {
	const prefix = "ARGOCD_AGENT_PRINCIPAL_METRICS_"
	m := &e.metrics
	set.String(&m.CA, "principal-metrics-ca-path", prefix+"CA_PATH", "", "file of the CA of the metrics' certificate; the system's CAs if empty", settings.File)
	set.String(&m.ServerName, "principal-metrics-server-name", prefix+"SERVER_NAME", "", "name in that certificate; the host of the address if empty, or of pods "+
		principals.Service+".NAMESPACE.svc", settings.Host)
	set.String(&m.Cert, "principal-metrics-cert", prefix+"CERT_PATH", "", "file of the client certificate that the metrics ask for", settings.File)
	set.String(&m.Key, "principal-metrics-key", prefix+"KEY_PATH", "", "file of the key of that certificate", settings.File)
	set.String(&m.TokenFile, "principal-metrics-token-file", prefix+"TOKEN_FILE", "", "file of the bearer token that the metrics ask for", settings.File)
	set.Rule(m.Check, "principal-metrics", "principal-metrics-ca-path", "principal-metrics-server-name", "principal-metrics-cert", "principal-metrics-key",
		"principal-metrics-token-file")
}

// alsoNamespace adds kubectl's flag for a namespace to commands that concern the hub alone.
func (e *endpoints) alsoNamespace(cmd *cobra.Command) *cobra.Command {
	cmd.PersistentFlags().StringVarP(&e.namespace, namespaceFlag, "n", "", "the same as --"+principalNamespaceFlag)
	return cmd
}

// resolve checks the flags before a cluster is asked.
func (e *endpoints) resolve(cmd *cobra.Command, set *settings.Set) error {
	if err := set.Resolve(); err != nil {
		return err
	}
	if _, own := cmd.Annotations[withoutCluster]; own {
		return nil
	}
	if err := e.lookUp(set); err != nil {
		return err
	}
	if e.namespace == "" {
		return nil
	}
	if cmd.Flags().Changed(principalNamespaceFlag) && e.principalNamespace != e.namespace {
		return fmt.Errorf("--%s is %s and --%s is %s, and both mean the same: set one", namespaceFlag, e.namespace,
			principalNamespaceFlag, e.principalNamespace)
	}
	e.principalNamespace = e.namespace
	if err := settings.DNSLabel(e.namespace); err != nil {
		return fmt.Errorf("--%s: %q: %w", namespaceFlag, e.namespace, err)
	}
	return nil
}

// withoutCluster marks commands that need no endpoints.
const withoutCluster = "without-cluster"

// lookUp takes from the config file what no flag and no variable says. A default principal counts only if nothing says which one.
func (e *endpoints) lookUp(set *settings.Set) error {
	file, err := localconfig.Load(e.config)
	if err != nil {
		return fmt.Errorf("--%s: %w", configFlag, err)
	}
	name := e.principal
	if name == "" && !set.Given(principalContextFlag) && !set.Given(principalNamespaceFlag) && e.namespace == "" {
		name = file.DefaultPrincipal
	}
	if name != "" {
		known, err := file.Principal(name)
		if err != nil {
			return fmt.Errorf("--%s: %w", principalFlag, err)
		}
		fill(set, &e.principalContext, principalContextFlag, known.Context)
		fill(set, &e.principalNamespace, principalNamespaceFlag, known.Namespace)
	}
	if e.agent == "" {
		return nil
	}
	known, err := file.Agent(e.agent)
	if err != nil {
		return fmt.Errorf("--%s: %w", agentFlag, err)
	}
	fill(set, &e.agentContext, agentContextFlag, known.Context)
	fill(set, &e.agentNamespace, agentNamespaceFlag, known.Namespace)
	return nil
}

// fill sets what the operator did not decide about.
func fill(set *settings.Set, target *string, flag, value string) {
	if !set.Given(flag) {
		*target = value
	}
}

// metricsAddresses accepts addresses of HTTP servers.
func metricsAddresses(addresses []string) error {
	for _, address := range addresses {
		if u, err := url.Parse(address); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			return fmt.Errorf("%q: want an address such as http://10.0.0.1:8000", address)
		}
	}
	return nil
}

// presence returns what asks the principals which agents are connected, and warns if not all say so.
func (e *endpoints) presence(cmd *cobra.Command, hub *cluster.Client) func() principals.Presence {
	return func() principals.Presence {
		return warned(cmd.ErrOrStderr(), principals.Ask(cmd.Context(), hub, e.metrics))
	}
}

// warned warns if not all principals have said which agents are connected.
func warned(out io.Writer, presence principals.Presence) principals.Presence {
	if presence.Unknown != nil {
		fmt.Fprintf(out, "warning: not known which agents are connected: %v\n", presence.Unknown)
	}
	return presence
}

// hub returns a client for the principal's cluster.
func (e *endpoints) hub() (*cluster.Client, error) {
	return cluster.New(cluster.Options{
		Title: "the hub", Kubeconfig: e.kubeconfig, Context: e.principalContext, Namespace: e.principalNamespace,
		ContextFlag: "--" + principalContextFlag,
	})
}

// caSuffix makes the namespace of the CA's private key of the principal's.
const caSuffix = "-agent-ca"

// ca returns a client for where the CA is, with its private key: by default a namespace of its own, since the principal reads all
// Secrets of its own one. A CA that is there already stays in use, with a warning.
func (e *endpoints) ca(cmd *cobra.Command, hub *cluster.Client) (*cluster.Client, error) {
	if e.caNamespace != "" {
		return hub.In(e.caNamespace), nil
	}
	beside, err := ca.HasKey(cmd.Context(), hub)
	if err != nil {
		return nil, err
	}
	if !beside {
		return hub.In(hub.Namespace + caSuffix), nil
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "warning: %s has the CA's private key, which the principal can read there: move that Secret to a namespace of its own, "+
		"such as %s, and run argocd-agentctl pki init; or accept it by --ca-namespace=%s\n", hub.Secret(ca.SecretName), hub.Namespace+caSuffix, hub.Namespace)
	return hub, nil
}

// loadCA returns the hub's CA, to issue by.
func (e *endpoints) loadCA(cmd *cobra.Command, hub *cluster.Client) (*ca.CA, error) {
	place, err := e.ca(cmd, hub)
	if err != nil {
		return nil, err
	}
	return ca.Load(cmd.Context(), place)
}

// spoke returns a client for the agent's cluster.
func (e *endpoints) spoke() (*cluster.Client, error) {
	return cluster.New(cluster.Options{
		Title: "the agent's cluster", Kubeconfig: e.kubeconfig, Context: e.agentContext, Namespace: e.agentNamespace,
		ContextFlag: "--" + agentContextFlag,
	})
}

// both is for commands that copy something from the hub to a spoke. Without --agent-context the hub itself would be changed,
// if it is the current context: so a spoke on the hub's cluster needs --same-context.
func (e *endpoints) both(sameContext bool) (hub, spoke *cluster.Client, err error) {
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
		return nil, nil, fmt.Errorf("the agent's cluster would be that of %s: choose another with --%s, or confirm this one with --%s",
			hub, agentContextFlag, sameContextFlag)
	}
	return hub, spoke, nil
}
