package commands

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/ca"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/pki"
)

// Flags of commands that make certificates and keys.
const (
	upsertFlag = "upsert"
	forceFlag  = "force"
	daysFlag   = "days"
)

// maxDays keeps the end of a certificate within what its format can say.
const maxDays = 36500

const day = 24 * time.Hour

// making is how something new is to be made.
type making struct {
	replace   bool
	days      int
	algorithm string
	size      int
}

// declareReplace declares the flag by which a person lets what is there be replaced.
func (m *making) declareReplace(cmd *cobra.Command) {
	cmd.Flags().BoolVarP(&m.replace, upsertFlag, "u", false, "replace what is there; without it, what is there and will do stays")
}

// declareCertificate declares the flags of a certificate.
func (m *making) declareCertificate(cmd *cobra.Command, lifetime time.Duration) {
	cmd.Flags().IntVar(&m.days, daysFlag, int(lifetime/day), "how many days the certificate is valid")
	m.declareKey(cmd, "ecdsa-p256 if empty, or rsa with --key-size")
}

// declareKey declares the flags of a private key. otherwise tells people which algorithm it is when they name none.
func (m *making) declareKey(cmd *cobra.Command, otherwise string) {
	cmd.Flags().StringVar(&m.algorithm, "key-algorithm", "", "rsa, ecdsa-p256, ecdsa-p384, ecdsa-p521 or ed25519; "+otherwise)
	cmd.Flags().IntVar(&m.size, "key-size", 0, "size of an RSA key in bits; 4096 if 0")
}

// key returns the kind of key that is asked for.
func (m *making) key() (pki.KeyKind, error) {
	kind, err := pki.ParseKeyKind(m.algorithm, m.size)
	if err != nil {
		return kind, fmt.Errorf("--key-algorithm and --key-size: %w", err)
	}
	return kind, nil
}

// certificate returns what kind of certificate is asked for. Days that nobody asked for end with the CA at the latest.
func (m *making) certificate(cmd *cobra.Command) (ca.New, error) {
	kind, err := m.key()
	if err != nil {
		return ca.New{}, err
	}
	n := ca.New{Replace: m.replace, Key: kind}
	if cmd.Flags().Changed(daysFlag) {
		if m.days < 1 || m.days > maxDays {
			return n, fmt.Errorf("--%s: %d: want 1 to %d", daysFlag, m.days, maxDays)
		}
		n.Lifetime = time.Duration(m.days) * day
	}
	return n, nil
}
