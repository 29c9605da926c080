package identity_test

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/pki"
)

const (
	berlin  = "spiffe://spoke.test/ns/argocd/sa/argocd-agent/agent/berlin"
	paris   = "spiffe://spoke.test/ns/argocd/sa/argocd-agent/agent/paris"
	ingress = "spiffe://hub.test/ns/istio-system/sa/istio-ingressgateway"
	sidecar = "spiffe://hub.test/ns/istio-system/sa/inner-gateway"
	digest  = "468ed33be74eee6556d90c0149c1309e9ba61d6425303443c0748a02dd8de688"
)

// local is an address of Istio's sidecar.
func local() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 6), Port: 40000} }

// remote is one of another machine.
func remote() net.Addr { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 40000} }

// secured is the state of a TLS connection of whoever has that URI.
func secured(t *testing.T, uri string) *tls.ConnectionState {
	t.Helper()
	ca := newCA(t)
	pair, err := ca.IssueClient(pki.ClientOptions{SPIFFEID: uri})
	require.NoError(t, err)
	certificate, err := pair.TLS()
	require.NoError(t, err)
	return &tls.ConnectionState{
		PeerCertificates: []*x509.Certificate{certificate.Leaf},
		VerifiedChains:   [][]*x509.Certificate{{certificate.Leaf, ca.Certificate()}},
	}
}

// wrapped is an address with more to it, as gRPC servers get them.
type wrapped struct{ net.Addr }

func TestHeaderCountsOnlyFromAProxy(t *testing.T) {
	t.Parallel()
	header := []string{"By=" + ingress + ";Hash=" + digest + `;Subject="";URI=` + berlin}
	inside, gateway := identity.Proxies{Local: true}, identity.Proxies{IDs: []string{ingress}}
	for name, c := range map[string]struct {
		proxies    identity.Proxies
		connection identity.Connection
		refusal    string
	}{
		"sidecar":                   {inside, identity.Connection{Address: local(), Header: header}, ""},
		"wrapped address":           {inside, identity.Connection{Address: wrapped{local()}, Header: header}, ""},
		"wrapped, from elsewhere":   {inside, identity.Connection{Address: wrapped{remote()}, Header: header}, "does not use TLS"},
		"IPv4 in IPv6":              {inside, identity.Connection{Address: &net.TCPAddr{IP: net.ParseIP("::ffff:127.0.0.1")}, Header: header}, ""},
		"IPv6":                      {inside, identity.Connection{Address: &net.TCPAddr{IP: net.IPv6loopback}, Header: header}, ""},
		"Unix socket":               {inside, identity.Connection{Address: &net.UnixAddr{Name: "@", Net: "unix"}, Header: header}, ""},
		"ingress":                   {gateway, identity.Connection{TLS: secured(t, ingress), Address: remote(), Header: header}, ""},
		"plain text from elsewhere": {inside, identity.Connection{Address: remote(), Header: header}, "does not use TLS"},
		"plain text, not allowed":   {gateway, identity.Connection{Address: local(), Header: header}, "does not use TLS"},
		"plain text, of no address": {inside, identity.Connection{Header: header}, "does not use TLS"},
		"agent's own connection":    {gateway, identity.Connection{TLS: secured(t, paris), Address: local(), Header: header}, "only from a trusted proxy"},
		"proxy of another domain":   {gateway, identity.Connection{TLS: secured(t, strings.Replace(ingress, "hub", "spoke", 1)), Header: header}, "only from a trusted proxy"},
		"no certificate":            {gateway, identity.Connection{TLS: &tls.ConnectionState{}, Address: local(), Header: header}, "no verified client certificate"},
		"sidecar without header":    {inside, identity.Connection{Address: local()}, "SANITIZE_SET"},
		"ingress without header":    {gateway, identity.Connection{TLS: secured(t, ingress), Address: remote()}, "SANITIZE_SET"},
		"header twice":              {inside, identity.Connection{Address: local(), Header: append(header, header...)}, "there are 2"},
		"header that is empty":      {inside, identity.Connection{Address: local(), Header: []string{""}}, "want pairs"},
		"two elements":              {inside, identity.Connection{Address: local(), Header: []string{header[0] + "," + header[0]}}, "it has 2 elements"},
		"encoded":                   {inside, identity.Connection{Address: local(), Header: []string{strings.ReplaceAll(header[0], "=", "%3D")}}, "want pairs"},
	} {
		t.Run(name, func(t *testing.T) {
			proof, err := c.proxies.Prove(c.connection)
			if c.refusal != "" {
				require.ErrorIs(t, err, identity.ErrUnauthenticated)
				require.ErrorContains(t, err, c.refusal)
				return
			}
			require.NoError(t, err)
			require.Equal(t, identity.XFCC, proof.Method)
			require.Equal(t, []string{berlin}, proof.URIs)
			require.Equal(t, digest, proof.Fingerprint)
			require.True(t, proof.NotAfter.After(time.Now()))
		})
	}
}

// A proxy may go on to show a certificate that has expired: what is over is over.
func TestExpiredCertificateInAHeaderIsRefused(t *testing.T) {
	t.Parallel()
	expired := time.Now().Add(-time.Second)
	pair, err := newCA(t).IssueClient(pki.ClientOptions{SPIFFEID: berlin, Validity: pki.Validity{NotBefore: expired.Add(-time.Hour), NotAfter: expired}})
	require.NoError(t, err)
	header := []string{`Cert="` + strings.ReplaceAll(url.QueryEscape(string(pair.Certificate)), "+", "%20") + `"`}
	_, err = identity.Proxies{Local: true}.Prove(identity.Connection{Address: local(), Header: header})
	require.ErrorIs(t, err, identity.ErrUnauthenticated)
	require.ErrorContains(t, err, "the certificate in it expired at "+expired.UTC().Format(time.RFC3339))
}

// What a client has got before the element of the first proxy, or after it by a comma in its own URI, makes the elements too many.
func TestThereAreAsManyElementsAsProxies(t *testing.T) {
	t.Parallel()
	const first, second, third = "By=" + ingress + ";URI=" + berlin, "By=" + sidecar + ";URI=" + ingress, "By=spiffe://hub.test/principal;URI=" + sidecar
	for name, c := range map[string]struct {
		hop    int
		header string
		want   string // the refusal, empty for none
	}{
		"one proxy":                        {1, first, ""},
		"two proxies":                      {2, first + "," + second, ""},
		"three proxies":                    {3, first + "," + second + "," + third, ""},
		"not by the first one":             {2, "By=" + sidecar + ";URI=" + berlin, ""},
		"a proxy with a DNS name alone":    {2, "URI=" + berlin + "," + second, ""},
		"one before":                       {2, "URI=" + paris + "," + first + "," + second, "it has 3 elements, and the setting --xfcc-hop allows 2"},
		"one within":                       {2, "URI=spiffe://evil.test/x," + first + "," + second, "it has 3 elements"},
		"one within, and one proxy":        {1, "URI=spiffe://evil.test/x," + first, "it has 2 elements"},
		"within one, the first proxy's":    {2, "By=" + sidecar + ";URI=" + paris + "," + second, "not what proxies in a row write"},
		"the same, and who wrote it":       {2, "By=" + sidecar + ";URI=" + paris + ";By=" + ingress + "," + second, "not what proxies in a row write"},
		"a client that is no proxy":        {2, "URI=" + paris + "," + first, "which is no trusted proxy"},
		"a client in between that is none": {3, "URI=" + paris + "," + first + "," + third, "which is no trusted proxy"},
	} {
		proof, err := identity.Proxies{Local: true, IDs: []string{ingress, sidecar}, Hop: c.hop}.Prove(
			identity.Connection{Address: local(), Header: []string{c.header}})
		if c.want != "" {
			require.ErrorIs(t, err, identity.ErrUnauthenticated, name)
			require.ErrorContains(t, err, c.want, name)
			continue
		}
		require.NoError(t, err, name)
		require.Equal(t, []string{berlin}, proof.URIs, name)
	}
}

// A proxy sends what its clients do over the same connection.
func TestEachStreamOfAProxyHasItsOwnPeer(t *testing.T) {
	t.Parallel()
	state := secured(t, ingress)
	for _, uri := range []string{berlin, paris, berlin} {
		proof, err := identity.Proxies{IDs: []string{ingress}}.Prove(identity.Connection{TLS: state, Address: remote(), Header: []string{"URI=" + uri}})
		require.NoError(t, err)
		require.Equal(t, []string{uri}, proof.URIs)
		require.Equal(t, state.PeerCertificates, proof.Certificates, "the proxy's, which has to stay good")
	}
}

func TestWhoIsWhichAgent(t *testing.T) {
	t.Parallel()
	const template = "spiffe://{trustDomain}/ns/argocd/sa/argocd-agent/agent/{agent}"
	table, err := identity.ParseTable(map[string]string{
		"rome": "spiffe://rome.test/ns/argocd/sa/argocd-agent\nspiffe://rome.test/ns/argocd/sa/other\n\n", "oslo": "",
	})
	require.NoError(t, err)
	require.Equal(t, 2, table.Len())
	byTLS := func(uris ...string) identity.Proof { return identity.Proof{Method: identity.MTLS, URIs: uris} }
	byHeader := func(uris ...string) identity.Proof { return identity.Proof{Method: identity.XFCC, URIs: uris} }
	for name, c := range map[string]struct {
		auth  string
		proof identity.Proof
		agent identity.Agent
		want  string
	}{
		"template":                     {template, byTLS(berlin), "berlin", ""},
		"template, by a proxy":         {template, byHeader(berlin), "berlin", ""},
		"second template":              {"spiffe://x/{agent}," + template, byHeader(berlin), "berlin", ""},
		"table":                        {"spiffe:", byTLS("spiffe://rome.test/ns/argocd/sa/other"), "rome", ""},
		"table beside a template":      {template, byTLS("spiffe://rome.test/ns/argocd/sa/argocd-agent"), "rome", ""},
		"another trust domain":         {template, byTLS(strings.Replace(berlin, "spoke", "evil", 1)), "", "of no form"},
		"another path":                 {template, byTLS("spiffe://spoke.test/ns/default/sa/argocd-agent/agent/berlin"), "", "of no form"},
		"not in the table":             {"spiffe:", byTLS(berlin), "", "of no form"},
		"listed agent by the template": {template, byTLS(strings.Replace(berlin, "berlin", "rome", 1)), "", "not one of those"},
		"agent without any":            {template, byTLS(strings.Replace(berlin, "berlin", "oslo", 1)), "", "not one of those"},
		"no URI":                       {template, byTLS(), "", "no URI"},
		"two URIs":                     {template, byHeader(berlin, paris), "", "2 URIs"},
		"no SPIFFE ID":                 {template, byHeader("https://spoke.test/ns/argocd"), "", "no SPIFFE ID"},
		"encoded":                      {template, byHeader(strings.Replace(berlin, "berlin", "%62erlin", 1)), "", "no SPIFFE ID"},
		"upper case":                   {template, byHeader(strings.Replace(berlin, "berlin", "Berlin", 1)), "", "agent name"},
		"the hub's namespace":          {template, byTLS(strings.Replace(berlin, "berlin", "argocd", 1)), "", "agent name"},
		"regular expression on the header's text": {
			"header:x-forwarded-client-cert:^.*URI=spiffe://[^/]+/ns/[^/]+/sa/argocd-agent/agent/([^,;]+)", byHeader(berlin), "berlin", "",
		},
		"regular expression on the URI": {"header:x-forwarded-client-cert:^spiffe://spoke.test/.*/([^/]+)$", byHeader(berlin), "berlin", ""},
		"regular expression, another trust domain": {
			"header:x-forwarded-client-cert:([^/]+)$", byHeader(strings.Replace(berlin, "spoke", "evil", 1)), "", "not of the trust domain",
		},
		"header wanted, certificate come": {"header:x-forwarded-client-cert:([^/]+)$", byTLS(berlin), "", "by mtls"},
		"certificate wanted, header come": {"mtls:uri:([^/]+)$", byHeader(berlin), "", "by xfcc"},
		"subject of a header":             {identity.DefaultAuth, identity.Proof{Method: identity.XFCC, Subject: "CN=berlin"}, "", "by xfcc"},
	} {
		t.Run(name, func(t *testing.T) {
			authenticator, err := identity.New(identity.Options{
				Auth: c.auth, TrustDomain: "spoke.test", Reserved: []string{"argocd"}, Table: func() identity.Table { return table },
			})
			require.NoError(t, err)
			agent, err := authenticator.AgentOf(c.proof)
			if c.want == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, c.want)
			}
			require.Equal(t, c.agent, agent)
		})
	}
}

func TestWhatIsWrongInATableIsNobodys(t *testing.T) {
	t.Parallel()
	table, err := identity.ParseTable(map[string]string{
		"a": "spiffe://x/shared\nspiffe://x/a\nspiffe://x/a", "b": "spiffe://x/shared", "c": "spiffe://x/%63\nhttps://x/c\nspiffe://x/c", "D": "spiffe://x/d",
	})
	require.ErrorContains(t, err, `SPIFFE ID "spiffe://x/shared" is that of a and b`)
	require.ErrorContains(t, err, `agent c: SPIFFE ID "https://x/c"`)
	require.ErrorContains(t, err, `agent name "D"`)
	require.Equal(t, 2, table.Len())
}
