package commands

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/ca"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/certificate"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/program"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/pki"
)

func pkiCommands(e *endpoints) *cobra.Command {
	return group(&cobra.Command{
		Use: "pki", Short: "Keep a CA on the hub, and issue certificates by it",
		Long: `Keep a CA on the hub, and issue certificates by it.

The CA's private key is in a Secret on the hub. Whoever can read that Secret can be any agent, and the principal reads all
Secrets of its namespace: so the key has a namespace of its own. Where that is not good enough, have another CA issue the
certificates, into the same Secrets.`,
	}, initCommand(e), issueCommands(e), pkiInspectCommand(e), propagateCommand(e), pkiDumpCommand(e), pkiDeleteCommand(e))
}

func initCommand(e *endpoints) *cobra.Command {
	var m issueFlags
	cmd := &cobra.Command{
		Use: "init", Short: "Create the CA", Args: program.NoArguments,
		Long: "Create the CA, in the Secret " + ca.SecretName + " on the hub, in a namespace of its own. A good one stays.\n" +
			"Argo CD's namespace gets a Secret of the same name with the certificate only.",
		Example: "  argocd-agentctl pki init --principal-context hub",
		RunE: func(cmd *cobra.Command, _ []string) error {
			n, err := m.certificate(cmd)
			if err != nil {
				return err
			}
			hub, err := e.hub()
			if err != nil {
				return err
			}
			printed := resultPrinter(cmd)
			place, err := e.ca(cmd, hub)
			if err != nil {
				return err
			}
			if e.caNamespace == "" && !place.Same(hub) {
				if err := place.CreateNamespace(cmd.Context()); err != nil {
					return err
				}
			}
			if err := printed(ca.Init(cmd.Context(), place, n)); err != nil || place.Same(hub) {
				return err
			}
			trusted, err := ca.LoadTrusted(cmd.Context(), place)
			if err != nil {
				return err
			}
			return printed(ca.Propagate(cmd.Context(), trusted, hub, m.replace))
		},
	}
	m.declareCertificate(cmd, pki.CALifetime)
	cmd.Flags().BoolVarP(&m.replace, forceFlag, "f", false, "replace an existing CA: its certificates are no longer trusted")
	return cmd
}

func propagateCommand(e *endpoints) *cobra.Command {
	var m issueFlags
	var sameContext bool
	cmd := &cobra.Command{
		Use: "propagate", Short: "Have an agent's cluster trust the hub's CA", Args: program.NoArguments,
		Long: "Copy the CA's certificate, without its key, into the Secret " + ca.SecretName + " on an agent's cluster.\n" +
			"argocd-agentctl pki issue agent does so too.",
		Example: "  argocd-agentctl pki propagate --principal-context hub --agent-context berlin",
		RunE: func(cmd *cobra.Command, _ []string) error {
			hub, spoke, err := e.both(sameContext)
			if err != nil {
				return err
			}
			trusted, err := ca.LoadTrusted(cmd.Context(), hub)
			if err != nil {
				return err
			}
			return resultPrinter(cmd)(ca.Propagate(cmd.Context(), trusted, spoke, m.replace))
		},
	}
	m.declareUpsert(cmd)
	m.declareForce(cmd)
	declareSameContext(cmd, &sameContext)
	return cmd
}

// declareSameContext declares the flag by which a person says that the agent's cluster is the hub's own.
func declareSameContext(cmd *cobra.Command, target *bool) {
	cmd.Flags().BoolVar(target, sameContextFlag, false, "the agent runs on the hub's cluster")
}

func pkiInspectCommand(e *endpoints) *cobra.Command {
	var f format
	var full bool
	cmd := &cobra.Command{
		Use: "inspect", Short: "Show the CA and the hub's certificates, and their problems", Args: program.NoArguments,
		Long: "Show the CA and the hub's certificates, and their problems. With any, the exit code is 1.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			hub, err := e.hub()
			if err != nil {
				return err
			}
			place, err := e.ca(cmd, hub)
			if err != nil {
				return err
			}
			report, err := ca.Inspect(cmd.Context(), place, hub)
			if err != nil {
				return err
			}
			if full {
				report.AddPEM()
			}
			err = f.print(cmd, report, func(out io.Writer) { printReport(out, report) })
			return foundProblems(err, "hub", report.Count())
		},
	}
	cmd.Flags().BoolVarP(&full, "full", "f", false, "also show the certificates themselves, as PEM")
	f.declare(cmd)
	return cmd
}

func pkiDumpCommand(e *endpoints) *cobra.Command {
	var key, certificates, all bool
	cmd := &cobra.Command{
		Use: "dump", Short: "Print the CA's certificate, its private key or both, as PEM", Args: program.NoArguments,
		Example: "  argocd-agentctl pki dump --cert",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !key && !certificates && !all {
				return errors.New("give --cert, --key or --all")
			}
			hub, err := e.hub()
			if err != nil {
				return err
			}
			issuer, err := e.loadCA(cmd, hub)
			if err != nil {
				return err
			}
			pair := issuer.PEM()
			var text []byte
			if certificates || all {
				text = append(text, issuer.Trusted.PEM...)
			}
			if key || all {
				text = append(text, pair.Key...)
			}
			_, err = cmd.OutOrStdout().Write(text)
			return err
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "print both, the private key too")
	cmd.Flags().BoolVar(&key, "key", false, "print the private key")
	cmd.Flags().BoolVar(&certificates, "cert", false, "print the certificate, and that of an older CA beside it")
	return cmd
}

func pkiDeleteCommand(e *endpoints) *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use: "delete", Short: "Delete the CA", Args: program.NoArguments,
		Long: `Delete the Secret of the CA with its private key, and the Secret beside the principal that has its certificate. Nothing can be
issued by it any more. Certificates that it issued are accepted while the programs run that have read its own; once they are started
again they find no CA.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			hub, err := e.hub()
			if err != nil {
				return err
			}
			place, err := e.ca(cmd, hub)
			if err != nil {
				return err
			}
			where := "Really delete the CA, " + place.Secret(ca.SecretName)
			if !place.Same(hub) {
				where += " and " + hub.Secret(ca.SecretName)
			}
			if err := confirm(cmd, force, where+"?", "YES"); err != nil {
				return err
			}
			results, err := ca.Delete(cmd.Context(), place, hub)
			for _, result := range results {
				if err := resultPrinter(cmd)(result, nil); err != nil {
					return err
				}
			}
			return err
		},
	}
	declareConfirmed(cmd, &force)
	return cmd
}

func printReport(out io.Writer, r ca.Report) {
	fmt.Fprintf(out, "Secret %s\n", r.Secret)
	for i := range r.CAs {
		printCertificate(out, &r.CAs[i])
	}
	key := "present"
	if !r.PrivateKey {
		key = "missing"
	}
	fmt.Fprintf(out, "  private key\t%s\n", key)
	printProblems(out, "  ", r.Problems)
	for _, entry := range r.Certificates {
		fmt.Fprintf(out, "\nSecret %s\n", entry.Secret)
		printCertificate(out, entry.Certificate)
		printProblems(out, "  ", entry.Problems)
	}
}

// printCertificate prints a certificate, a line for each property.
func printCertificate(out io.Writer, c *certificate.Info) {
	if c == nil {
		return
	}
	if c.Subject != "" { // a caller's has none
		fmt.Fprintf(out, "  subject\t%s\n", c.Subject)
	}
	fmt.Fprintf(out, "  issuer\t%s\n", c.Issuer)
	if len(c.Names) > 0 {
		fmt.Fprintf(out, "  for\t%s\n", certificate.List(c.Names))
	}
	fmt.Fprintf(out, "  valid\t%s to %s\n", certificate.Stamp(c.NotBefore), certificate.Stamp(c.NotAfter))
	fmt.Fprintf(out, "  key\t%s\n  SHA-256\t%s\n%s", c.Key, c.SHA256, c.PEM)
}

func printProblems(out io.Writer, indent string, problems []string) {
	for _, problem := range problems {
		fmt.Fprintf(out, "%sPROBLEM\t%s\n", indent, problem)
	}
}
