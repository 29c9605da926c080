package pki_test

import (
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/pki"
)

func newCA(t *testing.T, options pki.CAOptions) *pki.CA {
	t.Helper()
	if options.CommonName == "" {
		options.CommonName = "test CA"
	}
	ca, err := pki.NewCA(options)
	require.NoError(t, err)
	return ca
}

func leaf(t *testing.T, pair pki.Pair) *x509.Certificate {
	t.Helper()
	loaded, err := pair.TLS()
	require.NoError(t, err)
	return loaded.Leaf
}

func verify(leaf *x509.Certificate, ca *pki.CA, name string, usage x509.ExtKeyUsage) error {
	pool := x509.NewCertPool()
	pool.AddCert(ca.Certificate())
	_, err := leaf.Verify(x509.VerifyOptions{Roots: pool, DNSName: name, KeyUsages: []x509.ExtKeyUsage{usage}})
	return err
}

func TestServerCertificateIsValidForItsNamesOnly(t *testing.T) {
	ca := newCA(t, pki.CAOptions{})
	pair, err := ca.IssueServer(pki.ServerOptions{
		Names:     []string{"principal.argocd.svc", "localhost"},
		Addresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	})
	require.NoError(t, err)
	certificate := leaf(t, pair)

	for _, name := range []string{"principal.argocd.svc", "localhost", "127.0.0.1"} {
		require.NoError(t, verify(certificate, ca, name, x509.ExtKeyUsageServerAuth))
	}
	require.ErrorAs(t, verify(certificate, ca, "example.com", x509.ExtKeyUsageServerAuth), new(x509.HostnameError))
	require.Error(t, verify(certificate, ca, "localhost", x509.ExtKeyUsageClientAuth), "a server certificate is no client certificate")
	require.Equal(t, "principal.argocd.svc", certificate.Subject.CommonName)
	require.False(t, certificate.IsCA)
}

func TestClientCertificateHasAgentName(t *testing.T) {
	ca := newCA(t, pki.CAOptions{})
	pair, err := ca.IssueClient(pki.ClientOptions{CommonName: "agent-a", SPIFFEID: "spiffe://example.org/ns/argocd/sa/agent-a"})
	require.NoError(t, err)
	certificate := leaf(t, pair)

	require.NoError(t, verify(certificate, ca, "", x509.ExtKeyUsageClientAuth))
	require.Error(t, verify(certificate, ca, "", x509.ExtKeyUsageServerAuth))
	require.Equal(t, "CN=agent-a", certificate.Subject.String())
	require.Len(t, certificate.URIs, 1)
	require.Equal(t, "spiffe://example.org/ns/argocd/sa/agent-a", certificate.URIs[0].String())
}

func TestCertificateOfAnotherCAIsNotTrusted(t *testing.T) {
	ours := newCA(t, pki.CAOptions{})
	theirs := newCA(t, pki.CAOptions{CommonName: "test CA"})
	pair, err := theirs.IssueClient(pki.ClientOptions{CommonName: "agent-a"})
	require.NoError(t, err)
	require.ErrorAs(t, verify(leaf(t, pair), ours, "", x509.ExtKeyUsageClientAuth), new(x509.UnknownAuthorityError))
}

func TestLoadedCAIssuesCertificates(t *testing.T) {
	original := newCA(t, pki.CAOptions{})
	loaded, err := pki.LoadCA(original.PEM().Certificate, original.PEM().Key)
	require.NoError(t, err)

	pair, err := loaded.IssueClient(pki.ClientOptions{CommonName: "agent-a"})
	require.NoError(t, err)
	require.NoError(t, verify(leaf(t, pair), original, "", x509.ExtKeyUsageClientAuth))
}

func TestLoadCARefusesCertificatesThatCannotSign(t *testing.T) {
	ca := newCA(t, pki.CAOptions{})
	other := newCA(t, pki.CAOptions{})
	client, err := ca.IssueClient(pki.ClientOptions{CommonName: "agent-a"})
	require.NoError(t, err)

	_, err = pki.LoadCA(ca.PEM().Certificate, other.PEM().Key)
	require.ErrorContains(t, err, "private key does not match")
	_, err = pki.LoadCA(client.Certificate, client.Key)
	require.ErrorContains(t, err, "not one of a CA")
	_, err = pki.LoadCA([]byte("rubbish"), ca.PEM().Key)
	require.Error(t, err)
}

func TestValidity(t *testing.T) {
	now := time.Now().Truncate(time.Second)
	short := newCA(t, pki.CAOptions{Validity: pki.Validity{NotAfter: now.Add(time.Hour)}})

	t.Run("explicit times are kept, also past ones", func(t *testing.T) {
		validity := pki.Validity{NotBefore: now.Add(-2 * time.Hour), NotAfter: now.Add(-time.Hour)}
		pair, err := short.IssueClient(pki.ClientOptions{CommonName: "agent-a", Validity: validity})
		require.NoError(t, err)
		require.True(t, leaf(t, pair).NotBefore.Equal(validity.NotBefore))
		require.True(t, leaf(t, pair).NotAfter.Equal(validity.NotAfter))
	})
	t.Run("the default ends with the CA", func(t *testing.T) {
		pair, err := short.IssueClient(pki.ClientOptions{CommonName: "agent-a"})
		require.NoError(t, err)
		require.True(t, leaf(t, pair).NotAfter.Equal(short.Certificate().NotAfter))
	})
	t.Run("the default lifetimes", func(t *testing.T) {
		long := newCA(t, pki.CAOptions{})
		require.WithinDuration(t, now.Add(pki.CALifetime), long.Certificate().NotAfter, time.Hour)
		pair, err := long.IssueClient(pki.ClientOptions{CommonName: "agent-a"})
		require.NoError(t, err)
		require.WithinDuration(t, now.Add(pki.LeafLifetime), leaf(t, pair).NotAfter, time.Hour)
	})
	t.Run("none outlives its CA", func(t *testing.T) {
		_, err := short.IssueClient(pki.ClientOptions{CommonName: "agent-a", Validity: pki.Validity{NotAfter: now.Add(2 * time.Hour)}})
		require.ErrorContains(t, err, "renew the CA first")
	})
	t.Run("an expired CA issues nothing by default", func(t *testing.T) {
		expired := newCA(t, pki.CAOptions{Validity: pki.Validity{NotBefore: now.Add(-2 * time.Hour), NotAfter: now.Add(-time.Hour)}})
		_, err := expired.IssueClient(pki.ClientOptions{CommonName: "agent-a"})
		require.ErrorContains(t, err, "renew the CA first")
	})
	t.Run("an end before the start", func(t *testing.T) {
		_, err := short.IssueClient(pki.ClientOptions{CommonName: "agent-a", Validity: pki.Validity{NotAfter: now.Add(-time.Hour)}})
		require.ErrorContains(t, err, "choose a later end")
	})
}

func TestKeyAlgorithms(t *testing.T) {
	ca := newCA(t, pki.CAOptions{})
	for _, algorithm := range []pki.Algorithm{pki.ECDSAP256, pki.ECDSAP384, pki.ECDSAP521, pki.Ed25519, pki.RSA} {
		t.Run(string(algorithm), func(t *testing.T) {
			parsed, err := pki.ParseAlgorithm(string(algorithm))
			require.NoError(t, err)
			pair, err := ca.IssueClient(pki.ClientOptions{CommonName: "agent-a", Key: pki.KeyKind{Algorithm: parsed}})
			require.NoError(t, err)
			require.NoError(t, verify(leaf(t, pair), ca, "", x509.ExtKeyUsageClientAuth))
		})
	}
	_, err := pki.ParseAlgorithm("dsa")
	require.ErrorContains(t, err, "ecdsa-p256")
}

func TestCertificateWithoutNameIsRefused(t *testing.T) {
	ca := newCA(t, pki.CAOptions{})
	_, err := pki.NewCA(pki.CAOptions{})
	require.ErrorContains(t, err, "no common name")
	_, err = ca.IssueServer(pki.ServerOptions{CommonName: "principal"})
	require.ErrorContains(t, err, "no DNS name and no IP address")
	_, err = ca.IssueClient(pki.ClientOptions{CommonName: "agent-a", Caller: "agent-a"})
	require.ErrorContains(t, err, "must not name anybody else")
	_, err = ca.IssueClient(pki.ClientOptions{})
	require.ErrorContains(t, err, "agent's name")
	_, err = ca.IssueClient(pki.ClientOptions{CommonName: "agent-a", SPIFFEID: "http://example.org/x"})
	require.ErrorContains(t, err, "spiffe://example.org")
}

func TestParseKeyKind(t *testing.T) {
	for name, c := range map[string]struct {
		algorithm string
		bits      int
		want      pki.KeyKind
		problem   string
	}{
		"none":             {"", 0, pki.KeyKind{}, ""},
		"an algorithm":     {"ed25519", 0, pki.KeyKind{Algorithm: pki.Ed25519}, ""},
		"a size":           {"", 2048, pki.KeyKind{Algorithm: pki.RSA, Bits: 2048}, ""},
		"both":             {"rsa", 3072, pki.KeyKind{Algorithm: pki.RSA, Bits: 3072}, ""},
		"an unknown one":   {"dsa", 0, pki.KeyKind{}, "ecdsa-p256"},
		"a needless size":  {"ecdsa-p256", 256, pki.KeyKind{}, "only rsa keys come in sizes"},
		"a size too small": {"rsa", 1024, pki.KeyKind{}, "use 2048 to 8192"},
		"a size too large": {"", 1 << 20, pki.KeyKind{}, "use 2048 to 8192"},
	} {
		t.Run(name, func(t *testing.T) {
			kind, err := pki.ParseKeyKind(c.algorithm, c.bits)
			if c.problem != "" {
				require.ErrorContains(t, err, c.problem)
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.want, kind)
		})
	}
}

func TestNewKeyHasItsAlgorithm(t *testing.T) {
	text, err := pki.NewKey(pki.KeyKind{Algorithm: pki.RSA, Bits: 2048})
	require.NoError(t, err)
	block, rest := pem.Decode(text)
	require.Equal(t, "PRIVATE KEY", block.Type)
	require.Empty(t, rest)
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	require.NoError(t, err)
	require.Equal(t, 2048, key.(*rsa.PrivateKey).N.BitLen())
	_, err = pki.NewKey(pki.KeyKind{Algorithm: pki.Ed25519, Bits: 2048})
	require.ErrorContains(t, err, "leave the size out")
	_, err = pki.NewKey(pki.KeyKind{Algorithm: "dsa"})
	require.ErrorContains(t, err, "ecdsa-p256")
}
