package pki_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"net"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/pki"
)

// Whoever asks for a certificate chooses its key and nothing else, whatever the request says.
func TestRequestDecidesNothingButTheKey(t *testing.T) {
	t.Parallel()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	ca, err := asn1.Marshal(struct {
		IsCA bool
	}{true})
	require.NoError(t, err)
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject:  pkix.Name{CommonName: "argocd-agent-kubeproxy", Organization: []string{"system:masters"}},
		DNSNames: []string{"argocd-agent-principal"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, EmailAddresses: []string{"a@b"},
		URIs:            []*url.URL{{Scheme: "spiffe", Host: "argocd-agent", Path: "/caller/paris"}},
		ExtraExtensions: []pkix.Extension{{Id: asn1.ObjectIdentifier{2, 5, 29, 19}, Critical: true, Value: ca}},
	}, key)
	require.NoError(t, err)
	public, err := pki.ParseRequest(der)
	require.NoError(t, err)
	text, err := newCA(t, pki.CAOptions{}).SignClient("berlin", public, pki.Validity{NotAfter: time.Now().Add(time.Hour)})
	require.NoError(t, err)
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	issued := leaf(t, pki.Pair{Certificate: text, Key: pemOf("PRIVATE KEY", keyDER)})

	require.Equal(t, "CN=berlin", issued.Subject.String())
	require.Empty(t, issued.DNSNames)
	require.Empty(t, issued.IPAddresses)
	require.Empty(t, issued.EmailAddresses)
	require.Empty(t, issued.URIs)
	require.False(t, issued.IsCA)
	require.Equal(t, x509.KeyUsageDigitalSignature, issued.KeyUsage)
	require.Equal(t, []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, issued.ExtKeyUsage)
	require.WithinDuration(t, time.Now().Add(time.Hour), issued.NotAfter, time.Minute)
}

func TestRequestsThatNobodySignsFor(t *testing.T) {
	t.Parallel()
	request := func(key crypto.Signer) []byte {
		der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
		require.NoError(t, err)
		return der
	}
	weak, err := ecdsa.GenerateKey(elliptic.P224(), rand.Reader)
	require.NoError(t, err)
	short, err := rsa.GenerateKey(rand.Reader, 1024)
	require.NoError(t, err)
	good, _, err := pki.NewRequest(pki.KeyKind{})
	require.NoError(t, err)
	other, _, err := pki.NewRequest(pki.KeyKind{})
	require.NoError(t, err)
	stolen := append([]byte(nil), good...) // somebody else's key, whose signature the thief cannot make
	copy(stolen[len(stolen)-8:], other[len(other)-8:])

	for want, der := range map[string][]byte{
		"on the curve P-224":         request(weak),
		"RSA key has 1024 bits":      request(short),
		"not signed by its key":      stolen,
		"certificate request: asn1":  []byte("-----BEGIN CERTIFICATE REQUEST-----"),
		"trailing data":              append(append([]byte(nil), good...), 0),
		"and 16384 are the limit":    make([]byte, pki.MaxRequest+1),
		"certificate request: asn1:": nil,
	} {
		_, err := pki.ParseRequest(der)
		require.ErrorContains(t, err, want)
	}
	_, err = pki.ParseRequest(good)
	require.NoError(t, err)
}

func pemOf(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
