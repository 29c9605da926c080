package commands

import (
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/spf13/cobra"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/agents"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/ca"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/cluster"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/program"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/settings"
)

func issueCommands(e *endpoints) *cobra.Command {
	return group(&cobra.Command{
		Use: "issue", Aliases: []string{"new-cert"}, Short: "Issue a certificate by the hub's CA",
		Long: `Issue a certificate by the hub's CA, into the Secret where the program that it is for looks for it.

A good certificate stays as it is. One that is not as wanted is replaced with --upsert only. The programs reload their
certificates: none needs a restart.`,
	}, issuePrincipalCommand(e),
		issueServerCommand(e, "resource-proxy", "kubeproxy, which Argo CD asks for live objects", ca.ResourceProxy),
		issueServerCommand(e, "redis-proxy", "redisproxy, for Argo CD that uses it by TLS", ca.RedisProxy),
		issueServerCommand(e, "xds", "xds, as its clients and the principal see it", ca.XDS),
		issueComponentCommand(e), issueAgentCommand(e))
}

// serverNames are the names and addresses by which a server is reached from outside its cluster.
type serverNames struct {
	names, addresses []string
}

func (o *serverNames) declare(cmd *cobra.Command) {
	cmd.Flags().StringSliceVar(&o.names, "dns", nil, "DNS names by which the server is reached, besides those of its Service")
	cmd.Flags().StringSliceVar(&o.addresses, "ip", nil, "IP addresses by which the server is reached")
}

// parse checks the names and addresses, which are easily confused.
func (o *serverNames) parse() (ca.ExtraNames, error) {
	var parsed ca.ExtraNames
	for _, name := range o.names {
		name = strings.ToLower(strings.TrimSpace(name))
		if net.ParseIP(name) != nil {
			return parsed, fmt.Errorf("--dns: %q is an IP address: give it by --ip", name)
		}
		if err := errors.Join(settings.NonEmpty(name), settings.DNSSubdomain(strings.TrimPrefix(name, "*."))); err != nil {
			return parsed, fmt.Errorf("--dns: %q is no DNS name, without a scheme and without a port", name)
		}
		parsed.Names = append(parsed.Names, name)
	}
	for _, text := range o.addresses {
		address := net.ParseIP(strings.TrimSpace(text))
		if address == nil {
			return parsed, fmt.Errorf("--ip: %q is no IP address: give names by --dns", text)
		}
		parsed.Addresses = append(parsed.Addresses, address)
	}
	return parsed, nil
}

// issuePrincipalCommand issues what the principal needs, and those whom it lets reach every agent.
func issuePrincipalCommand(e *endpoints) *cobra.Command {
	var m issueFlags
	var o serverNames
	cmd := &cobra.Command{
		Use: "principal", Short: "Issue the certificates of the principal and the hub's components", Args: program.NoArguments,
		Long: `Issue the certificate that agents see, for the names and addresses by which they reach the principal, and the
certificates by which the principal knows kubeproxy and redisproxy.`,
		Example: "  argocd-agentctl pki issue principal --principal-context hub --dns hub.example.com --ip 192.0.2.1",
		RunE: func(cmd *cobra.Command, _ []string) error {
			from, err := o.parse()
			if err != nil {
				return err
			}
			wanted := []ca.Certificate{ca.Principal(e.principalNamespace, from)}
			for _, name := range ca.Components() {
				component, err := ca.Component(name)
				if err != nil {
					return err
				}
				wanted = append(wanted, component)
			}
			return e.issue(cmd, &m, wanted...)
		},
	}
	m.declareIssue(cmd)
	m.declareRenew(cmd)
	o.declare(cmd)
	return cmd
}

// issueServerCommand issues the certificate of a server on the hub.
func issueServerCommand(e *endpoints, use, of string, wanted func(string, ca.ExtraNames) ca.Certificate) *cobra.Command {
	var m issueFlags
	var o serverNames
	cmd := &cobra.Command{
		Use: use, Short: "Issue the certificate of " + of, Args: program.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			from, err := o.parse()
			if err != nil {
				return err
			}
			return e.issue(cmd, &m, wanted(e.principalNamespace, from))
		},
	}
	m.declareIssue(cmd)
	m.declareRenew(cmd)
	o.declare(cmd)
	cmd.Flags().Bool("no-san", false, "does nothing: a certificate always has the names of its Service")
	_ = cmd.Flags().MarkHidden("no-san") // it was declared
	return cmd
}

func issueComponentCommand(e *endpoints) *cobra.Command {
	var m issueFlags
	cmd := &cobra.Command{
		Use: "component NAME", Short: "Issue the certificate by which the principal knows kubeproxy or redisproxy",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return fmt.Errorf("%s: give its name: %s", cmd.CommandPath(), strings.Join(ca.Components(), " or "))
			}
			return nil
		},
		ValidArgs: ca.Components(),
		Long: `Issue the certificate by which the principal knows kubeproxy or redisproxy, and lets it reach every agent: see
--hub-components of the principal. argocd-agentctl pki issue principal does so too.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			wanted, err := ca.Component(args[0])
			if err != nil {
				return err
			}
			return e.issue(cmd, &m, wanted)
		},
	}
	m.declareIssue(cmd)
	m.declareRenew(cmd)
	return cmd
}

// issue issues certificates into Secrets on the hub. One that fails does not keep the others from being issued.
func (e *endpoints) issue(cmd *cobra.Command, m *issueFlags, wanted ...ca.Certificate) error {
	n, err := m.certificate(cmd)
	if err != nil {
		return err
	}
	hub, err := e.hub()
	if err != nil {
		return err
	}
	into, err := m.into(cmd, hub.Namespace, func() (*cluster.Client, error) { return hub, nil })
	if err != nil {
		return err
	}
	issuer, err := e.loadCA(cmd, hub)
	if err != nil {
		return err
	}
	var problems []error
	for _, one := range wanted {
		problems = append(problems, resultPrinter(cmd)(issuer.Issue(cmd.Context(), into, one, n)))
	}
	return errors.Join(problems...)
}

func issueAgentCommand(e *endpoints) *cobra.Command {
	var m issueFlags
	var sameContext bool
	cmd := &cobra.Command{
		Use: "agent NAME", Short: "Issue the certificate of an agent, and have its cluster trust the CA", Args: oneAgent,
		Long: `Issue the certificate by which the principal knows an agent, into the Secret ` + ca.AgentSecret + ` on the agent's
cluster, and copy the CA's certificate there, as argocd-agentctl pki propagate does. With --output yaml both Secrets are printed
instead, and the agent's cluster is not asked.`,
		Example: "  argocd-agentctl pki issue agent berlin --principal-context hub --agent-context berlin\n" +
			"  argocd-agentctl pki issue agent berlin --principal-context hub -o yaml | kubectl --context berlin apply -f -",
		RunE: func(cmd *cobra.Command, args []string) error {
			n, err := m.certificate(cmd)
			if err != nil {
				return err
			}
			hub, err := e.hub()
			if err != nil {
				return err
			}
			spoke, err := m.into(cmd, e.agentNamespace, func() (*cluster.Client, error) {
				_, spoke, err := e.both(sameContext)
				return spoke, err
			})
			if err != nil {
				return err
			}
			name, err := agents.ParseName(hub, args[0])
			if err != nil {
				return err
			}
			issuer, err := e.loadCA(cmd, hub)
			if err != nil {
				return err
			}
			return issueAgent(cmd, issuer, hub, spoke, name, n)
		},
	}
	m.declareIssue(cmd)
	declareSameContext(cmd, &sameContext)
	return cmd
}

// issueAgent copies the CA to the spoke first: if that is refused, such as on the hub itself, nothing is issued.
func issueAgent(cmd *cobra.Command, issuer *ca.CA, hub, spoke *cluster.Client, name string, n ca.New) error {
	if !hub.Same(spoke) { // an agent beside the principal has the CA beside it
		if err := resultPrinter(cmd)(ca.Propagate(cmd.Context(), issuer.Trusted, spoke, n.Replace)); err != nil {
			return err
		}
	}
	return resultPrinter(cmd)(issuer.Issue(cmd.Context(), spoke, ca.Agent(name), n))
}
