package xfcc_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/pem"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/certs"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/pki"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/xfcc"
)

// hash is some SHA-256 digest.
const hash = "468ed33be74eee6556d90c0149c1309e9ba61d6425303443c0748a02dd8de688"

// The first three are from Envoy's documentation.
func TestHeadersOfEnvoy(t *testing.T) {
	t.Parallel()
	for header, want := range map[string][]xfcc.Element{
		`By=http://frontend.lyft.com;Hash=` + hash + `;Subject="/C=US/ST=CA/L=San Francisco/OU=Lyft/CN=Test Client";URI=http://testclient.lyft.com`: {{
			By: []string{"http://frontend.lyft.com"}, Hash: hash, Subject: "/C=US/ST=CA/L=San Francisco/OU=Lyft/CN=Test Client",
			URI: []string{"http://testclient.lyft.com"},
		}},
		`By=http://frontend.lyft.com;Hash=` + hash + `;URI=http://testclient.lyft.com,By=http://backend.lyft.com;Hash=` + strings.ToUpper(hash) + `;URI=http://frontend.lyft.com`: {
			{By: []string{"http://frontend.lyft.com"}, Hash: hash, URI: []string{"http://testclient.lyft.com"}},
			{By: []string{"http://backend.lyft.com"}, Hash: hash, URI: []string{"http://frontend.lyft.com"}},
		},
		`By=http://frontend.lyft.com;Hash=` + hash + `;Subject="/CN=x";URI=http://testclient.lyft.com;DNS=lyft.com;DNS=www.lyft.com`: {{
			By: []string{"http://frontend.lyft.com"}, Hash: hash, Subject: "/CN=x", URI: []string{"http://testclient.lyft.com"},
			DNS: []string{"lyft.com", "www.lyft.com"},
		}},
		// Whoever may choose a subject can write in it what looks like the rest of a header.
		`Subject="CN=a\",URI=spiffe://hub.test/agent/victim;URI=\"";URI=spiffe://hub.test/agent/liar`: {{
			Subject: `CN=a",URI=spiffe://hub.test/agent/victim;URI="`, URI: []string{"spiffe://hub.test/agent/liar"},
		}},
		`Subject="CN=a\\";URI=spiffe://hub.test/agent/liar`: {{Subject: `CN=a\\`, URI: []string{"spiffe://hub.test/agent/liar"}}},
		`Subject="O=Smith\, Inc.";URI=x`:                    {{Subject: `O=Smith\, Inc.`, URI: []string{"x"}}},
		`uRI=spiffe://hub.test/a;bY=x`:                      {{URI: []string{"spiffe://hub.test/a"}, By: []string{"x"}}},
		`URI=http://x/?a=b;Future="of Envoy"`:               {{URI: []string{"http://x/?a=b"}}},
		`URI=a;URI=b`:                                       {{URI: []string{"a", "b"}}},
		`URI=;By=`:                                          {{}},
	} {
		got, err := xfcc.Parse(header)
		require.NoError(t, err, header)
		require.Equal(t, want, got, header)
	}
}

func TestWhatIsNoHeaderIsRefused(t *testing.T) {
	t.Parallel()
	for header, want := range map[string]string{
		``:                               "want pairs",
		`,`:                              "want pairs",
		`URI=a,`:                         "element 2: want pairs",
		`,URI=a`:                         "element 1: want pairs",
		`URI=a;`:                         "want pairs",
		`;URI=a`:                         "want pairs",
		`URI`:                            "want pairs",
		`=a`:                             "want pairs",
		`"URI"=a`:                        "want pairs",
		`URI=a, URI=b`:                   "other characters than letters",
		`URI%3Da`:                        "want pairs",
		`U%52I=a`:                        "other characters than letters",
		`URI="a`:                         "not closed",
		`URI="a\`:                        "not closed",
		`URI="a\"`:                       "not closed",
		`URI="a"b`:                       "something follows",
		`URI=a"b"`:                       "within a value",
		`Hash=12`:                        "no SHA-256",
		`Hash=x` + hash[1:]:              "no SHA-256",
		`Subject="a";subject="b"`:        "twice",
		`Hash=` + hash + `;hash=` + hash: "twice",
		`Cert=""`:                        "not one certificate",
		`Cert="%zz"`:                     "not URL-encoded",
		`Cert="-----BEGIN%20CERTIFICATE-----%0AAAAA%0A-----END%20CERTIFICATE-----%0A"`: "its Cert: ",
	} {
		_, err := xfcc.Parse(header)
		require.ErrorContains(t, err, want, header)
	}
}

// escaped is PEM as Envoy writes it.
func escaped(text []byte) string {
	return strings.ReplaceAll(url.QueryEscape(string(text)), "+", "%20")
}

func TestCertificateIsReadAndComparedWithTheRest(t *testing.T) {
	t.Parallel()
	ca, err := pki.NewCA(pki.CAOptions{CommonName: "ca"})
	require.NoError(t, err)
	pair, err := ca.IssueClient(pki.ClientOptions{SPIFFEID: "spiffe://hub.test/agent/berlin"})
	require.NoError(t, err)
	certificates, err := certs.ParseCertificates(pair.Certificate)
	require.NoError(t, err)
	sum := sha256.Sum256(certificates[0].Raw)
	digest := hex.EncodeToString(sum[:])
	cert := `;Cert="` + escaped(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificates[0].Raw})) + `"`

	for _, header := range []string{
		"Hash=" + digest + cert + ";URI=spiffe://hub.test/agent/berlin", "URI=spiffe://hub.test/agent/berlin" + cert, "By=x" + cert,
		"By=;URI=" + cert,
	} {
		got, err := xfcc.Parse(header)
		require.NoError(t, err)
		require.Equal(t, digest, got[0].Hash)
		require.Equal(t, []string{"spiffe://hub.test/agent/berlin"}, got[0].URI)
		require.Equal(t, certificates[0].NotAfter, got[0].Certificate.NotAfter)
	}
	for header, want := range map[string]string{
		"Hash=" + hash + cert:                      "Hash is not that of its Cert",
		"URI=spiffe://hub.test/agent/paris" + cert: "URI is not that of its Cert",
		"URI=spiffe://hub.test/agent/berlin;URI=spiffe://hub.test/agent/berlin" + cert: "URI is not that of its Cert",
	} {
		_, err := xfcc.Parse(header)
		require.ErrorContains(t, err, want, header)
	}
}

// Whatever comes, reading it ends, and what is read has been in the header.
func FuzzParse(f *testing.F) {
	f.Add(`By=a;Hash=` + hash + `;Subject="CN=a\"b";URI=spiffe://hub.test/a,URI=b`)
	f.Add(`Subject="\\\"",URI="a;b"`)
	f.Fuzz(func(t *testing.T, header string) {
		elements, err := xfcc.Parse(header)
		if err != nil {
			return
		}
		require.NotEmpty(t, elements)
		require.LessOrEqual(t, len(elements), 1+strings.Count(header, ","))
		for _, e := range elements {
			for _, value := range append(append(e.URI, e.By...), e.DNS...) {
				require.LessOrEqual(t, len(value), len(header))
			}
		}
	})
}
