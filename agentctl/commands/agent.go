package commands

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/agents"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/certificate"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/cluster"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/principals"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/program"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/settings"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/pki"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/argocd"
)

func agentCommands(e *endpoints) *cobra.Command {
	return e.alsoNamespace(group(&cobra.Command{
		Use: "agent", Short: "Register agents on the hub, list and inspect them, shut them out",
	}, createCommand(e), listCommand(e), inspectCommand(e), reconfigureCommand(e), deleteCommand(e), printTLSCommand(e),
		blockCommand(e), unblockCommand(e), enrollmentCommands(e)))
}

// createFlags are the flags of agent create.
type createFlags struct {
	issueFlags

	proxy               string
	mode                string
	labels              []string
	tlsSecret, caSecret string
	sidecar             bool
}

func createCommand(e *endpoints) *cobra.Command {
	var c createFlags
	var spoke manifestFlags
	cmd := &cobra.Command{
		Use: "create NAME", Short: "Register an agent on the hub", Args: oneAgent,
		Long: `Register an agent on the hub: create the Secret cluster-NAME, by which Argo CD and the principal know its cluster. Argo CD
reaches that cluster through the resource proxy, with a client certificate that has the agent's name.
In a service mesh no certificate is needed: with --no-client-cert Argo CD asks http://HOST:PORT/agents/NAME, and its sidecar proves who it is.`,
		Example: `  argocd-agentctl agent create berlin --principal-context hub --label region=eu
  argocd-agentctl agent create tokyo --mode autonomous
  argocd-agentctl agent create oslo --output-manifest oslo --server-address hub.example.com --enroll
  argocd-agentctl agent create berlin --tls-from-secret berlin-tls --ca-from-secret berlin-tls
  argocd-agentctl agent create berlin --no-client-cert`,
		RunE: func(cmd *cobra.Command, args []string) error { return spoke.create(cmd, e, &c, args[0]) },
	}
	flags := cmd.Flags()
	spoke.declare(cmd)
	flags.StringVar(&c.proxy, "resource-proxy-server", argocd.DefaultResourceProxy, "host:port of the resource proxy, as Argo CD on the hub reaches it")
	flags.StringVar(&c.mode, "mode", "", "managed or autonomous: the one mode that the principal takes the agent in; what the Secret says if empty, else managed")
	flags.StringSliceVarP(&c.labels, "label", "l", nil, "labels of the Secret, as key=value")
	c.declareSources(cmd)
	c.declareUpsert(cmd)
	c.declareCertificate(cmd, pki.LeafLifetime)
	declareFormer(cmd)
	return cmd
}

// declareSources declares the flags that say where certificates are that exist already.
func (c *createFlags) declareSources(cmd *cobra.Command) {
	cmd.Flags().StringVar(&c.tlsSecret, "tls-from-secret", "", "Secret, as [namespace/]name, of a certificate that is issued already; needs --ca-from-secret")
	cmd.Flags().StringVar(&c.caSecret, "ca-from-secret", "", "Secret, as [namespace/]name, of the CA that the resource proxy's certificate comes from")
	cmd.Flags().BoolVar(&c.sidecar, "no-client-cert", false, "no certificate and key: the sidecar of Argo CD proves who it is, and kubeproxy's setting --callers says what it may reach")
}

// formerFlags are accepted because argocd-agent's documentation has them.
func formerFlags() []string { return []string{"resource-proxy-username", "resource-proxy-password"} }

// declareFormer declares those.
func declareFormer(cmd *cobra.Command) {
	for _, former := range formerFlags() {
		cmd.Flags().String(former, "", "does nothing")
		_ = cmd.Flags().MarkHidden(former) // it was declared
	}
}

// warnOfFormer says that they do nothing, if they were given.
func warnOfFormer(cmd *cobra.Command) {
	for _, former := range formerFlags() {
		if cmd.Flags().Changed(former) {
			fmt.Fprintf(cmd.ErrOrStderr(), "warning: --%s does nothing: the resource proxy knows callers by their certificates\n", former)
		}
	}
}

func (c *createFlags) run(cmd *cobra.Command, e *endpoints, name string) error {
	wanted := agents.Spec{Name: name, Proxy: c.proxy, Replace: c.replace}
	if err := settings.HostPort(c.proxy); err != nil {
		return fmt.Errorf("--resource-proxy-server: %q: want a host and a port, such as %s", c.proxy, argocd.DefaultResourceProxy)
	}
	warnOfFormer(cmd)
	var err error
	if wanted.Labels, err = parseLabels(c.labels); err != nil {
		return fmt.Errorf("--label: %w", err)
	}
	if err := pin(&wanted, c.mode); err != nil {
		return err
	}
	hub, err := e.hub()
	if err != nil {
		return err
	}
	if _, err := agents.ParseName(hub, name); err != nil {
		return err
	}
	if wanted.Access, err = c.access(cmd, e, hub); err != nil {
		return err
	}
	return resultPrinter(cmd)(agents.Create(cmd.Context(), hub, wanted))
}

// pin adds the mode that an agent is to have to its labels, if that is given.
func pin(wanted *agents.Spec, mode string) error {
	if mode == "" {
		return nil
	}
	if err := settings.OneOf("managed", "autonomous")(mode); err != nil {
		return fmt.Errorf("--mode: %q: %w", mode, err)
	}
	if other, ok := wanted.Labels[argocd.LabelMode]; ok && other != mode {
		return fmt.Errorf("--mode is %s and --label %s=%s: set one", mode, argocd.LabelMode, other)
	}
	labels := map[string]string{argocd.LabelMode: mode}
	maps.Copy(labels, wanted.Labels)
	wanted.Labels = labels
	return nil
}

// access returns where the certificates come from.
func (c *createFlags) access(cmd *cobra.Command, e *endpoints, hub *cluster.Client) (agents.Access, error) {
	n, err := c.certificate(cmd)
	if err != nil {
		return nil, err
	}
	switch {
	case c.sidecar && (c.tlsSecret != "" || c.caSecret != ""):
		return nil, errors.New("--no-client-cert and --tls-from-secret: set one")
	case c.sidecar:
		return agents.Sidecar{}, nil
	case c.tlsSecret == "" && c.caSecret == "":
		issuer, err := e.loadCA(cmd, hub)
		return agents.Issued{CA: issuer, New: n}, err
	case c.tlsSecret == "" || c.caSecret == "":
		return nil, errors.New("--tls-from-secret and --ca-from-secret: set both or neither")
	default:
		pair, err := reference(hub, c.tlsSecret)
		if err != nil {
			return nil, fmt.Errorf("--tls-from-secret: %w", err)
		}
		roots, err := reference(hub, c.caSecret)
		if err != nil {
			return nil, fmt.Errorf("--ca-from-secret: %w", err)
		}
		return agents.FromSecrets(cmd.Context(), pair, roots)
	}
}

// reference takes [namespace/]name apart.
func reference(hub *cluster.Client, text string) (agents.Source, error) {
	namespace, name, ok := strings.Cut(text, "/")
	if !ok {
		namespace, name = hub.Namespace, text
	}
	if err := errors.Join(settings.NonEmpty(namespace), settings.DNSLabel(namespace), settings.NonEmpty(name), settings.DNSSubdomain(name)); err != nil {
		return agents.Source{}, fmt.Errorf("%q: want the name of a Secret, or namespace/name", text)
	}
	return agents.Source{Place: hub.In(namespace), Name: name}, nil
}

// parseLabels takes key=value apart.
func parseLabels(texts []string) (map[string]string, error) {
	parsed, err := labels.ConvertSelectorToLabelsMap(strings.Join(texts, ","), field.WithPath(field.NewPath("labels")))
	if err != nil {
		return nil, fmt.Errorf("want key=value: %w", err)
	}
	return parsed, argocd.CheckClusterLabels(parsed)
}

func listCommand(e *endpoints) *cobra.Command {
	var f format
	var selector string
	cmd := &cobra.Command{
		Use: "list", Short: "List the agents that the hub knows", Args: program.NoArguments,
		Example: "  argocd-agentctl agent list --selector region=eu",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if _, err := labels.Parse(selector); err != nil {
				return fmt.Errorf("--selector: %w", err)
			}
			hub, err := e.hub()
			if err != nil {
				return err
			}
			all, err := agents.List(cmd.Context(), hub, selector, e.presence(cmd, hub))
			if err != nil {
				return err
			}
			warnOfNone(cmd.ErrOrStderr(), hub, selector, all)
			return f.print(cmd, all, func(out io.Writer) { printList(out, all, f == asWide) })
		},
	}
	cmd.Flags().StringVarP(&selector, "selector", "l", "", "only agents whose cluster Secrets have these labels, as kubectl takes them")
	cmd.Flags().StringVar(&selector, "label", "", "the same as --selector")
	f.declare(cmd)
	return cmd
}

// warnOfNone says that there is no agent: whoever asks in the wrong place takes an empty table for a fleet without problems.
func warnOfNone(out io.Writer, hub *cluster.Client, selector string, all []agents.Agent) {
	if len(all) == 0 {
		fmt.Fprintf(out, "warning: there is no agent in namespace %s on %s%s\n", hub.Namespace, hub, withSelector(selector))
	}
}

// withSelector says which agents were asked for, if not all.
func withSelector(selector string) string {
	if selector == "" {
		return ": is that where Argo CD is? --" + principalNamespaceFlag + " chooses another"
	}
	return " with labels " + selector
}

func printList(out io.Writer, all []agents.Agent, wide bool) {
	more := ""
	if wide {
		more = "\tMODE\tSECRET\tBUILD\tCREATED BY"
	}
	fmt.Fprintln(out, "NAME\tSERVER\tLABELS\tCONNECTION\tCERTIFICATE UNTIL\tPROBLEMS"+more)
	for _, agent := range all {
		until := "-"
		if agent.Certificate != nil {
			until = certificate.Stamp(agent.Certificate.NotAfter)
		}
		if wide {
			more = "\t" + strings.Join([]string{agent.Mode, agent.Secret, orDash(agent.Connection.Build), createdBy(agent)}, "\t")
		}
		fmt.Fprintf(out, "%s\t%s\t%s\t%s\t%s\t%d%s\n", agent.Name, agent.Server, labelText(agent.Labels), connectionText(agent.Connection), until, len(agent.Problems), more)
	}
}

// createdBy says who made an agent's Secret, and looks after it.
func createdBy(a agents.Agent) string {
	if a.SelfRegistered {
		return "principal"
	}
	return "person"
}

// connectionText says whether an agent is connected, and since when if that is known.
func connectionText(c principals.Connection) string {
	if c.Since == nil {
		return string(c.State)
	}
	return string(c.State) + " since " + certificate.Stamp(*c.Since)
}

func labelText(set map[string]string) string {
	if len(set) == 0 {
		return "-"
	}
	return labels.FormatLabels(set)
}

func inspectCommand(e *endpoints) *cobra.Command {
	var f format
	cmd := &cobra.Command{
		Use: "inspect NAME", Aliases: []string{"show"}, Short: "Show an agent and its problems", Args: oneAgent,
		Long:    "Show an agent on the hub and, with --agent-context, on its cluster, and its problems. With any, the exit code is 1.",
		Example: "  argocd-agentctl agent inspect berlin --principal-context hub --agent-context berlin -o yaml",
		RunE: func(cmd *cobra.Command, args []string) error {
			hub, err := e.hub()
			if err != nil {
				return err
			}
			var spoke *cluster.Client
			if e.agentContext != "" {
				if spoke, err = e.spoke(); err != nil {
					return err
				}
			}
			agent, err := agents.Inspect(cmd.Context(), hub, spoke, args[0], e.presence(cmd, hub))
			if err != nil {
				return err
			}
			err = f.print(cmd, agent, func(out io.Writer) { printAgent(out, agent) })
			return foundProblems(err, "agent "+agent.Name, len(agent.Problems))
		},
	}
	f.declare(cmd)
	return cmd
}

func printAgent(out io.Writer, a agents.Agent) {
	fmt.Fprintf(out, "name\t%s\nSecret\t%s\nserver\t%s\nlabels\t%s\nconnection\t%s\n", a.Name, a.Secret, a.Server, labelText(a.Labels),
		connectionText(a.Connection))
	if a.SelfRegistered {
		fmt.Fprintln(out, "created by\tthe principal, which keeps it up to date; agent create --upsert takes it over")
	}
	if a.Certificate != nil {
		fmt.Fprintln(out, "Argo CD's client certificate for the resource proxy:")
		printCertificate(out, a.Certificate)
	}
	if a.Token != nil && a.Token.NotAfter != nil {
		fmt.Fprintf(out, "  bearer token\tfor %s until %s\n", a.Token.Agent, certificate.Stamp(*a.Token.NotAfter))
	}
	switch {
	case a.Spoke == nil:
	case a.Spoke.From != "":
		fmt.Fprintf(out, "the agent's identity\tfrom %s\n", a.Spoke.From)
	default:
		fmt.Fprintln(out, "the agent's client certificate for the principal:")
		printCertificate(out, a.Spoke.Certificate)
		for i := range a.Spoke.CAs {
			fmt.Fprintln(out, "CA that the agent trusts:")
			printCertificate(out, &a.Spoke.CAs[i])
		}
	}
	printProblems(out, "", a.Problems)
}
