package commands

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/ca"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/cluster"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/settings"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/pki"
)

// Names of those flags.
const (
	upsertFlag = "upsert"
	forceFlag  = "force"
	daysFlag   = "days"
)

// maxDays keeps the end of a certificate within what X.509 can express.
const maxDays = 36500

const day = 24 * time.Hour

// issueFlags are the flags of commands that issue certificates and keys.
type issueFlags struct {
	replace   bool
	renew     bool
	days      int
	algorithm string
	size      int
	dryRun    bool
	output    string
}

// declareIssue declares the flags of a command that issues certificates into Secrets.
func (m *issueFlags) declareIssue(cmd *cobra.Command) {
	m.declareUpsert(cmd)
	m.declareCertificate(cmd, pki.LeafLifetime)
	cmd.Flags().BoolVar(&m.dryRun, "dry-run", false, "write nothing, and say what would be written")
	cmd.Flags().StringVarP(&m.output, "output", "o", "", "yaml: print the Secrets with their private keys, and write nothing")
}

// into returns what takes the Secrets for a namespace of a cluster, which is only looked for if it is needed.
func (m *issueFlags) into(cmd *cobra.Command, namespace string, place func() (*cluster.Client, error)) (*cluster.Client, error) {
	if m.output != "" {
		if err := settings.OneOf(string(asYAML))(m.output); err != nil {
			return nil, fmt.Errorf("--output: %q: %w", m.output, err)
		}
		return cluster.Print(namespace, cmd.OutOrStdout()), nil
	}
	into, err := place()
	if err == nil && m.dryRun {
		into = into.DryRun()
	}
	return into, err
}

// declareUpsert declares the flag that allows to replace an existing Secret.
func (m *issueFlags) declareUpsert(cmd *cobra.Command) {
	cmd.Flags().BoolVarP(&m.replace, upsertFlag, "u", false, "replace an existing Secret; without it, one that is as wanted stays")
}

// declareRenew declares the flag for who runs a command again and again, and does not look at what is there.
func (m *issueFlags) declareRenew(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&m.renew, "renew", false,
		"replace a certificate of this CA that is not as wanted, such as one that has expired or lacks a name; it keeps the names that it has")
}

// declareForce declares another spelling of the same.
func (m *issueFlags) declareForce(cmd *cobra.Command) {
	cmd.Flags().BoolVarP(&m.replace, forceFlag, "f", false, "the same as --upsert")
}

// declareCertificate declares the flags of a certificate.
func (m *issueFlags) declareCertificate(cmd *cobra.Command, lifetime time.Duration) {
	cmd.Flags().IntVar(&m.days, daysFlag, int(lifetime/day), "how many days the certificate is valid")
	m.declareKey(cmd, "ecdsa-p256 if empty, or rsa with --key-size")
}

// declareKey declares the flags of a private key. otherwise is the help on the default algorithm.
func (m *issueFlags) declareKey(cmd *cobra.Command, otherwise string) {
	cmd.Flags().StringVar(&m.algorithm, "key-algorithm", "", "rsa, ecdsa-p256, ecdsa-p384, ecdsa-p521 or ed25519; "+otherwise)
	cmd.Flags().IntVar(&m.size, "key-size", 0, "size of an RSA key in bits; 4096 if 0")
}

// key returns the wanted kind of key.
func (m *issueFlags) key() (pki.KeyKind, error) {
	kind, err := pki.ParseKeyKind(m.algorithm, m.size)
	if err != nil {
		return kind, fmt.Errorf("--key-algorithm and --key-size: %w", err)
	}
	return kind, nil
}

// certificate returns the wanted kind of certificate. The default lifetime ends with the CA at the latest.
func (m *issueFlags) certificate(cmd *cobra.Command) (ca.New, error) {
	kind, err := m.key()
	if err != nil {
		return ca.New{}, err
	}
	n := ca.New{Replace: m.replace, Renew: m.renew, Key: kind}
	if cmd.Flags().Changed(daysFlag) {
		if m.days < 1 || m.days > maxDays {
			return n, fmt.Errorf("--%s: %d: want 1 to %d", daysFlag, m.days, maxDays)
		}
		n.Lifetime = time.Duration(m.days) * day
	}
	return n, nil
}
