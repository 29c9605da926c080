package blocklist_test

import (
	"crypto/x509"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/blocklist"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/pki"
)

func certificate(t *testing.T, name, id string) *x509.Certificate {
	t.Helper()
	ca, err := pki.NewCA(pki.CAOptions{CommonName: "test"})
	require.NoError(t, err)
	pair, err := ca.IssueClient(pki.ClientOptions{CommonName: name, SPIFFEID: id})
	require.NoError(t, err)
	own, err := pair.TLS()
	require.NoError(t, err)
	return own.Leaf
}

// proofOf is what somebody has shown who presented a certificate.
func proofOf(x *x509.Certificate) identity.Proof { return identity.Certified([]*x509.Certificate{x}) }

func TestEachKindOfKeyBlocksWhatItNames(t *testing.T) {
	const id = "spiffe://example.org/ns/argocd/sa/berlin"
	x := certificate(t, "berlin", id)
	for name, key := range map[string]string{
		"agent":                     blocklist.Agent("berlin"),
		"fingerprint":               blocklist.Certificate(x),
		"fingerprint in upper case": strings.ToUpper(blocklist.Certificate(x)),
		"SPIFFE ID":                 blocklist.URI(id),
	} {
		t.Run(name, func(t *testing.T) {
			list, err := blocklist.Parse(map[string]string{key: "stolen"})
			require.NoError(t, err)
			require.ErrorContains(t, list.Refuses(proofOf(x), "berlin"), "is blocked")
			require.NoError(t, list.Refuses(proofOf(certificate(t, "paris", "spiffe://example.org/ns/argocd/sa/paris")), "paris"))
		})
	}
	require.NoError(t, blocklist.List{}.Refuses(proofOf(x), "berlin"))
}

// Whoever renews a stolen certificate is still blocked by name.
func TestAnotherCertificateOfABlockedAgentIsRefused(t *testing.T) {
	list := blocklist.Of([]string{blocklist.Agent("berlin")})
	require.ErrorContains(t, list.Refuses(proofOf(certificate(t, "berlin", "")), "berlin"), "argocd-agentctl agent unblock berlin")
	list = blocklist.Of([]string{blocklist.Certificate(certificate(t, "berlin", ""))})
	require.NoError(t, list.Refuses(proofOf(certificate(t, "berlin", "")), "berlin"))
}

// What can be read holds even beside what cannot.
func TestKeysThatCannotBeReadAreNamed(t *testing.T) {
	for _, bad := range []string{"berlin", "agent.", "agent.Berlin", "uri.spiffe", strings.Repeat("a", 63), strings.Repeat("a", 65), "agent.a.b"} {
		list, err := blocklist.Parse(map[string]string{bad: "", blocklist.Agent("paris"): ""})
		require.ErrorContains(t, err, bad)
		require.Equal(t, []string{"agent.paris"}, list.Keys())
	}
}

func TestFingerprintsAsToolsPrintThem(t *testing.T) {
	x := certificate(t, "berlin", "")
	key := blocklist.Certificate(x)
	var colons []string
	for i := 0; i < len(key); i += 2 {
		colons = append(colons, strings.ToUpper(key[i:i+2]))
	}
	for _, text := range []string{key, strings.ToUpper(key), strings.Join(colons, ":")} {
		parsed, err := blocklist.ParseFingerprint(text)
		require.NoError(t, err)
		require.Equal(t, key, parsed)
	}
	for _, text := range []string{"", "berlin", key[2:], key + "00"} {
		_, err := blocklist.ParseFingerprint(text)
		require.ErrorContains(t, err, "no SHA-256 fingerprint")
	}
	for _, text := range []string{"", "berlin", "spiffe:berlin", "/ns/argocd"} {
		_, err := blocklist.ParseURI(text)
		require.ErrorContains(t, err, "no URI")
	}
}
