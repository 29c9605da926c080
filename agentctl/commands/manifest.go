package commands

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/ca"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/certificate"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/cluster"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/manifest"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/settings"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/version"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/argocd"
)

// toStdout, in place of a folder, has a manifest printed.
const toStdout = "-"

// manifestFlags are those by which agent create makes what the agent needs on its spoke.
type manifestFlags struct {
	path, values, server string
	serverID, rootCA     string
	trusted              ca.Trusted // what rootCA has
	port, enrollmentPort int
	image                string
	enroll               bool
	ttl                  time.Duration
}

// defaultImage is the agent's of this release.
func defaultImage() string {
	return "ghcr.io/argocd-agent-mesh/agent:" + strings.ReplaceAll(version.Version(), "+", "_") // which no tag may have
}

func (m *manifestFlags) declare(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&m.path, "output-manifest", "", "folder to write a Kustomize folder for the agent's cluster to, with the agent's private key; - prints the YAML")
	flags.StringVar(&m.values, "output-values", "", "file to write values of the Helm chart argocd-agent-spoke to; it must not be there")
	flags.StringVar(&m.server, "server-address", "", "host name of the principal, as the agent reaches it; for --output-manifest and --output-values")
	flags.IntVar(&m.port, "server-port", 443, "port of the principal; for --output-manifest and --output-values")
	flags.StringVar(&m.serverID, "principal-spiffe-id", "", "SPIFFE ID that the principal has to have, instead of the name of its host; for --output-manifest and --output-values")
	flags.StringVar(&m.image, "image", defaultImage(), "image of the agent's Deployment, which runs the agent by itself; empty for no Deployment; for --output-manifest")
	flags.BoolVar(&m.enroll, "enroll", false, "put an enrollment token in place of a certificate into the manifest: the agent makes its own key; for --output-manifest and --output-values")
	flags.StringVar(&m.rootCA, "root-ca-path", "", "file of the CAs by which the agent knows the principal, such as the bundle of SPIRE, instead of the hub's CA; for --enroll")
	flags.IntVar(&m.enrollmentPort, "enrollment-port", 8444, "port of the principal for agents that enroll; for --enroll")
	flags.DurationVar(&m.ttl, "token-ttl", defaultTTL, "how long the token is good; at most 720h; for --enroll")
}

// check refuses flags that do not go together, before anything is written.
func (m *manifestFlags) check() error {
	switch {
	case m.path != "" && m.values != "":
		return errors.New("--output-manifest and --output-values: set one of them")
	case m.path == "" && m.values == "" && (m.server != "" || m.enroll || m.serverID != ""):
		return errors.New("--server-address, --enroll and --principal-spiffe-id are for --output-manifest and --output-values: set one of those too, or none of these")
	case m.rootCA != "" && !m.enroll:
		return errors.New("--root-ca-path is for --enroll: a certificate in the manifest is by the hub's CA, and comes with it")
	case m.path == "" && m.values == "":
		return nil
	}
	if _, err := os.Lstat(m.values); m.values != "" && err == nil {
		return fmt.Errorf("--output-values: %s is there already: name a new file", m.values)
	}
	if _, err := spiffeid.FromString(m.serverID); m.serverID != "" && err != nil {
		return fmt.Errorf("--principal-spiffe-id: %q: %w: want one such as spiffe://hub.example/principal", m.serverID, err)
	}
	if m.rootCA != "" {
		var err error
		if m.trusted, err = ca.ReadTrustedFile(m.rootCA); err != nil {
			return fmt.Errorf("--root-ca-path: %w", err)
		}
	}
	if err := errors.Join(settings.NonEmpty(m.server), settings.Host(m.server)); err != nil {
		return fmt.Errorf("--server-address: %q: want the host name of the principal, which the agent dials: %w", m.server, err)
	}
	if err := settings.Port(m.port); err != nil {
		return fmt.Errorf("--server-port: %d: %w", m.port, err)
	}
	if !m.enroll {
		return nil
	}
	if err := settings.Port(m.enrollmentPort); err != nil {
		return fmt.Errorf("--enrollment-port: %d: %w", m.enrollmentPort, err)
	}
	return checkTTL("--token-ttl", m.ttl)
}

// create runs agent create, which must print nothing but the manifest where that is printed, and then makes the manifest.
func (m *manifestFlags) create(cmd *cobra.Command, e *endpoints, c *createFlags, name string) error {
	if err := m.check(); err != nil {
		return err
	}
	if m.path == "" && m.values == "" {
		return c.run(cmd, e, name)
	}
	if m.path != toStdout && m.path != "" {
		if err := manifest.MakeFolder(m.path); err != nil {
			return err
		}
	}
	out := cmd.OutOrStdout()
	cmd.SetOut(cmd.ErrOrStderr())
	defer cmd.SetOut(out)
	if err := c.run(cmd, e, name); err != nil {
		return err
	}
	hub, err := e.hub()
	if err != nil {
		return err
	}
	spoke := manifest.Spoke{Namespace: e.agentNamespace, Server: m.server, Port: m.port, ServerID: m.serverID, Image: m.image}
	if spoke.Mode, err = modeOf(cmd, hub, name); err != nil {
		return err
	}
	if m.values != "" {
		cmd.SetOut(out)
		return m.writeValues(cmd, hub, spoke, name)
	}
	holds := "private key"
	if m.enroll {
		holds, spoke.EnrollmentPort = "enrollment token", m.enrollmentPort
		spoke.Secrets, err = m.token(cmd, e, hub, name)
	} else {
		spoke.Secrets, err = m.secrets(cmd, e, hub, c, name)
	}
	if err != nil {
		return err
	}
	if m.path != toStdout {
		if err := spoke.WriteFolder(m.path); err != nil {
			return err
		}
		return printLine(cmd, "Kustomize folder %s: created; it holds the agent's %s: apply it with: kubectl apply --server-side -k %s", m.path, holds, m.path)
	}
	text, err := spoke.YAML()
	if err == nil {
		_, err = out.Write(text)
	}
	return err
}

// modeOf returns the mode that an agent's cluster Secret binds it to.
func modeOf(cmd *cobra.Command, hub *cluster.Client, name string) (string, error) {
	secret, err := hub.Get(cmd.Context(), argocd.ClusterSecretName(name))
	if err != nil {
		return "", err
	}
	if secret != nil && secret.Labels[argocd.LabelMode] != "" {
		return secret.Labels[argocd.LabelMode], nil
	}
	return "managed", nil
}

// secrets issues the agent's certificate, and returns its Secret and that of the CA.
func (m *manifestFlags) secrets(cmd *cobra.Command, e *endpoints, hub *cluster.Client, c *createFlags, name string) ([]byte, error) {
	n, err := c.certificate(cmd)
	if err != nil {
		return nil, err
	}
	issuer, err := e.loadCA(cmd, hub)
	if err != nil {
		return nil, err
	}
	var printed bytes.Buffer
	err = issueAgent(cmd, issuer, hub, cluster.Print(e.agentNamespace, &printed), name, n)
	return printed.Bytes(), err
}

// writeValues writes values of the spoke's chart, and says what to do with them.
func (m *manifestFlags) writeValues(cmd *cobra.Command, hub *cluster.Client, spoke manifest.Spoke, name string) error {
	var trusted ca.Trusted
	var token string
	holds, before := "no secret", "issue its certificate with: argocd-agentctl pki issue agent "+name+", and then "
	if m.enroll {
		holds, before, spoke.EnrollmentPort = "the agent's enrollment token", "", m.enrollmentPort
		var err error
		if trusted, token, err = m.newToken(cmd, hub, name); err != nil {
			return err
		}
	}
	if err := spoke.Values(name, trusted.PEM, token).WriteFile(m.values); err != nil {
		return err
	}
	return printLine(cmd, "Values %s: created; they hold %s: %sinstall the agent with: helm install argocd-agent CHART -n %s -f %s", m.values, holds, before, spoke.Namespace, m.values)
}

// newToken makes an enrollment token of the agent, and returns the CAs by which the agent knows whom to show it to.
func (m *manifestFlags) newToken(cmd *cobra.Command, hub *cluster.Client, name string) (trusted ca.Trusted, token string, err error) {
	trusted = m.trusted
	if m.rootCA == "" {
		if trusted, err = ca.LoadTrusted(cmd.Context(), hub); err != nil {
			return trusted, "", err
		}
	}
	token, expires, err := newToken(cmd.Context(), hub, name, m.ttl, nil)
	if err != nil {
		return trusted, "", err
	}
	return trusted, token, printLine(cmd, "Enrollment token of agent %s: created, good until %s", name, certificate.Stamp(expires))
}

// token makes an enrollment token, and returns its Secret and that of the CA.
func (m *manifestFlags) token(cmd *cobra.Command, e *endpoints, hub *cluster.Client, name string) ([]byte, error) {
	trusted, token, err := m.newToken(cmd, hub, name)
	if err != nil {
		return nil, err
	}
	var printed bytes.Buffer
	if err := resultPrinter(cmd)(ca.Propagate(cmd.Context(), trusted, cluster.Print(e.agentNamespace, &printed), false)); err != nil {
		return nil, err
	}
	secret, err := manifest.Enrollment(e.agentNamespace, token)
	return append(printed.Bytes(), secret...), err
}
