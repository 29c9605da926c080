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
	request, err := pki.ParseRequest(der)
	require.NoError(t, err)
	text, err := newCA(t, pki.CAOptions{}).SignClient(pki.ClientOptions{CommonName: "berlin", Validity: pki.Validity{NotAfter: time.Now().Add(time.Hour)}}, request.Key)
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
	good, _, err := pki.NewRequest(pki.KeyKind{}, "berlin")
	require.NoError(t, err)
	other, _, err := pki.NewRequest(pki.KeyKind{}, "berlin")
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

// A request can be made again by the key that was kept of the first.
func TestRequestByAKeyThatWasKept(t *testing.T) {
	t.Parallel()
	first, key, err := pki.NewRequest(pki.KeyKind{}, "berlin")
	require.NoError(t, err)
	again, err := pki.RequestBy(key, "berlin")
	require.NoError(t, err)
	var keys [][]byte
	for _, der := range [][]byte{first, again} {
		request, err := pki.ParseRequest(der)
		require.NoError(t, err)
		require.NoError(t, request.NamesOnly("berlin"))
		raw, err := request.Key.Raw()
		require.NoError(t, err)
		keys = append(keys, raw)
	}
	require.Equal(t, keys[0], keys[1])
	for want, bad := range map[string][]byte{
		"its key is not in PEM form": nil, "certificate request: asn1": pemOf("PRIVATE KEY", []byte("junk")),
	} {
		_, err := pki.RequestBy(bad, "berlin")
		require.ErrorContains(t, err, want)
	}
}

// A signer that takes requests as they are must get none that asks for more than the agent's name.
func TestRequestsThatAskForMoreThanTheName(t *testing.T) {
	t.Parallel()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	parse := func(template *x509.CertificateRequest) pki.Request {
		der, err := x509.CreateCertificateRequest(rand.Reader, template, key)
		require.NoError(t, err)
		request, err := pki.ParseRequest(der)
		require.NoError(t, err)
		return request
	}
	berlin := pkix.Name{CommonName: "berlin"}
	cn := func(name string) pkix.AttributeTypeAndValue {
		return pkix.AttributeTypeAndValue{Type: asn1.ObjectIdentifier{2, 5, 4, 3}, Value: name}
	}
	constraint, err := asn1.Marshal(struct{ IsCA bool }{true})
	require.NoError(t, err)
	for name, template := range map[string]*x509.CertificateRequest{
		"nobody":             {},
		"somebody else":      {Subject: pkix.Name{CommonName: "paris"}},
		"an organisation":    {Subject: pkix.Name{CommonName: "berlin", Organization: []string{"system:masters"}}},
		"a serial number":    {Subject: pkix.Name{CommonName: "berlin", SerialNumber: "1"}},
		"another name first": {Subject: pkix.Name{ExtraNames: []pkix.AttributeTypeAndValue{cn("paris"), cn("berlin")}}},
		"another name last":  {Subject: pkix.Name{ExtraNames: []pkix.AttributeTypeAndValue{cn("berlin"), cn("paris")}}},
		"the name twice":     {Subject: pkix.Name{ExtraNames: []pkix.AttributeTypeAndValue{cn("berlin"), cn("berlin")}}},
		"the name elsewhere": {Subject: pkix.Name{Organization: []string{"berlin"}}},
		"more of a name":     {Subject: pkix.Name{CommonName: "berlin\x00"}},
	} {
		require.ErrorContains(t, parse(template).NamesOnly("berlin"), `and has to be "CN=berlin"`, name)
	}
	for name, template := range map[string]*x509.CertificateRequest{
		"a DNS name":           {Subject: berlin, DNSNames: []string{"argocd-agent-principal"}},
		"an address":           {Subject: berlin, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}},
		"a mail address":       {Subject: berlin, EmailAddresses: []string{"a@b"}},
		"a SPIFFE ID":          {Subject: berlin, URIs: []*url.URL{{Scheme: "spiffe", Host: "argocd-agent", Path: "/caller/paris"}}},
		"to be a CA":           {Subject: berlin, ExtraExtensions: []pkix.Extension{{Id: asn1.ObjectIdentifier{2, 5, 29, 19}, Value: constraint}}},
		"something unheard of": {Subject: berlin, ExtraExtensions: []pkix.Extension{{Id: asn1.ObjectIdentifier{1, 2, 3}, Value: []byte{5, 0}}}},
		"another attribute": {Subject: berlin, Attributes: []pkix.AttributeTypeAndValueSET{{
			Type: asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 9, 2}, Value: [][]pkix.AttributeTypeAndValue{{cn("paris")}},
		}}},
	} {
		require.ErrorContains(t, parse(template).NamesOnly("berlin"), "it may have none", name)
	}
	require.NoError(t, parse(&x509.CertificateRequest{Subject: berlin}).NamesOnly("berlin"))
	ours, _, err := pki.NewRequest(pki.KeyKind{}, "berlin")
	require.NoError(t, err)
	request, err := pki.ParseRequest(ours)
	require.NoError(t, err)
	require.NoError(t, request.NamesOnly("berlin"))
	require.Equal(t, ours, mustPEM(t, request.PEM(), "CERTIFICATE REQUEST"))
}

// mustPEM returns what is in the one block of PEM text.
func mustPEM(t *testing.T, text []byte, kind string) []byte {
	t.Helper()
	block, rest := pem.Decode(text)
	require.NotNil(t, block)
	require.Empty(t, rest)
	require.Equal(t, kind, block.Type)
	return block.Bytes
}

func pemOf(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
