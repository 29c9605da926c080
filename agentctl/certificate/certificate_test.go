package certificate_test

import (
	"crypto/x509"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/certificate"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/pki"
)

func caOf(t *testing.T, name string, validity pki.Validity) *pki.CA {
	t.Helper()
	made, err := pki.NewCA(pki.CAOptions{CommonName: name, Validity: validity})
	require.NoError(t, err)
	return made
}

func chain(t *testing.T, pair pki.Pair, err error) []*x509.Certificate {
	t.Helper()
	require.NoError(t, err)
	loaded, err := pair.TLS()
	require.NoError(t, err)
	return []*x509.Certificate{loaded.Leaf}
}

func trusting(cas ...*pki.CA) certificate.Use {
	use := certificate.Use{As: x509.ExtKeyUsageClientAuth, Trusting: "the Secret"}
	for _, one := range cas {
		use.CAs = append(use.CAs, one.Certificate())
	}
	return use
}

func TestProblems(t *testing.T) {
	now := time.Now()
	const day = 24 * time.Hour
	ours, theirs := caOf(t, "ours", pki.Validity{}), caOf(t, "theirs", pki.Validity{})
	brief := caOf(t, "brief", pki.Validity{NotBefore: now.Add(-2 * day), NotAfter: now.Add(-day)})
	client := func(from *pki.CA, validity pki.Validity) []*x509.Certificate {
		pair, err := from.IssueClient(pki.ClientOptions{CommonName: "berlin", Validity: validity})
		return chain(t, pair, err)
	}
	server, err := ours.IssueServer(pki.ServerOptions{Names: []string{"hub"}})
	past := pki.Validity{NotBefore: now.Add(-2 * day), NotAfter: now.Add(-day)}
	for name, c := range map[string]struct {
		use   certificate.Use
		chain []*x509.Certificate
		now   time.Time
		want  []string
	}{
		"nothing":                    {trusting(ours), client(ours, pki.Validity{}), now, nil},
		"of one of several":          {trusting(theirs, ours), client(ours, pki.Validity{}), now, nil},
		"of anybody":                 {trusting(), client(theirs, pki.Validity{}), now, nil},
		"expired":                    {trusting(ours), client(ours, past), now, []string{"it expired at "}},
		"early":                      {trusting(ours), client(ours, pki.Validity{}), now.Add(-day), []string{"it is not valid before"}},
		"soon expired":               {trusting(ours), client(ours, pki.Validity{}), now.Add(170 * day), []string{"in 9 days: renew it"}},
		"very soon expired":          {trusting(ours), client(ours, pki.Validity{}), now.Add(179 * day), []string{"in 23h55m0s: renew it"}},
		"of a stranger":              {trusting(ours), client(theirs, pki.Validity{}), now, []string{"it was issued by CN=theirs, which is none of the CAs in the Secret"}},
		"of a stranger, and expired": {trusting(ours), client(theirs, past), now, []string{"it expired at ", "it was issued by CN=theirs"}},
		"for servers":                {trusting(ours), chain(t, server, err), now, []string{"it is not for clients"}},
		"of an expired CA":           {trusting(brief), client(brief, pki.Validity{NotBefore: now.Add(-2 * day)}), now.Add(-12 * time.Hour), []string{"it expired at"}},
		"of a CA that is dead":       {trusting(brief), outliving(t, brief, now), now, []string{"its CA CN=brief is not valid at"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := c.use.Problems(c.chain, c.now)
			require.Len(t, got, len(c.want), "%v", got)
			for i, want := range c.want {
				require.Contains(t, got[i], want)
			}
		})
	}
}

// outliving is a certificate that is valid longer than its CA, as others issue them.
func outliving(t *testing.T, brief *pki.CA, now time.Time) []*x509.Certificate {
	t.Helper()
	long, err := pki.LoadCA(brief.PEM().Certificate, brief.PEM().Key)
	require.NoError(t, err)
	long.Certificate().NotAfter = now.Add(time.Hour) // of the copy, by which it goes when it issues
	pair, err := long.IssueClient(pki.ClientOptions{CommonName: "berlin"})
	return chain(t, pair, err)
}

func TestServerCertificateCoversHost(t *testing.T) {
	ours := caOf(t, "ours", pki.Validity{})
	pair, err := ours.IssueServer(pki.ServerOptions{Names: []string{"proxy", "*.example.com"}, Addresses: []net.IP{net.IPv4(192, 0, 2, 1)}})
	leaf := chain(t, pair, err)[0]
	for host, want := range map[string]string{
		"proxy": "", "hub.example.com": "", "192.0.2.1": "",
		"other": "it is for proxy, *.example.com, 192.0.2.1, not for other", "192.0.2.2": "not for 192.0.2.2",
	} {
		if err := certificate.Covers(leaf, host); want == "" {
			require.NoError(t, err, host)
		} else {
			require.ErrorContains(t, err, want)
		}
	}
}

func TestDescribe(t *testing.T) {
	for algorithm, want := range map[pki.Algorithm]string{pki.RSA: "RSA 2048", pki.ECDSAP384: "ECDSA P-384", pki.Ed25519: "Ed25519"} {
		kind := pki.KeyKind{Algorithm: algorithm}
		if algorithm == pki.RSA {
			kind.Bits = 2048
		}
		made, err := pki.NewCA(pki.CAOptions{CommonName: "ours", Key: kind})
		require.NoError(t, err)
		got := certificate.Describe(made.Certificate())
		require.Equal(t, want, got.Key)
		require.Equal(t, "CN=ours", got.Subject)
		require.Equal(t, "CN=ours", got.Issuer)
		require.Len(t, got.SHA256, 64)
		require.Equal(t, strings.ToLower(got.SHA256), got.SHA256)
		require.Empty(t, got.Names)
	}
	pair, err := caOf(t, "ours", pki.Validity{}).IssueClient(pki.ClientOptions{CommonName: "a", SPIFFEID: "spiffe://example.org/a"})
	got := certificate.Describe(chain(t, pair, err)[0])
	require.Equal(t, []string{"spiffe://example.org/a"}, got.Names)
}
