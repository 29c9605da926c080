package e2e_test

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	syncv1 "github.com/argocd-agent-mesh/argocd-agent-mesh/api/sync/v1"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/envoy"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/pki"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/xfcc"
)

// visitor opens a stream as an agent does, with headers of its own choice.
type visitor struct {
	address     string
	certificate *tls.Certificate // nil for none
	headers     []string
}

// refused opens the stream, and returns what the visitor is told.
func (v visitor) refused(t *testing.T) string {
	t.Helper()
	pool := x509.NewCertPool()
	pool.AddCert(shared.CA.Certificate())
	config := &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS13}
	if v.certificate != nil {
		config.Certificates = []tls.Certificate{*v.certificate}
	}
	conn, err := grpc.NewClient(v.address, grpc.WithTransportCredentials(credentials.NewTLS(config)))
	require.NoError(t, err)
	defer conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	ctx = metadata.NewOutgoingContext(ctx, metadata.MD{xfcc.Header: v.headers})
	stream, err := syncv1.NewSyncClient(conn).Connect(ctx)
	require.NoError(t, err)
	_, err = stream.Recv()
	require.Equal(t, codes.Unauthenticated, status.Code(err), "%v", err)
	return status.Convert(err).Message()
}

// leafOf is a client certificate with these URIs, of which argocd-agentctl gives one only.
func leafOf(t *testing.T, uris ...string) *tls.Certificate {
	t.Helper()
	return leafNamed(t, "", uris...)
}

// leafNamed is leafOf with a common name.
func leafNamed(t *testing.T, commonName string, uris ...string) *tls.Certificate {
	t.Helper()
	issuer, err := tls.X509KeyPair(shared.CA.PEM().Certificate, shared.CA.PEM().Key)
	require.NoError(t, err)
	pair := clientPair(t, shared.CA, "x", pki.Validity{})
	leaf, err := pair.TLS()
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	template.Subject.CommonName = commonName
	for _, uri := range uris {
		parsed, err := url.Parse(uri)
		require.NoError(t, err)
		template.URIs = append(template.URIs, parsed)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, shared.CA.Certificate(), leaf.Leaf.PublicKey, issuer.PrivateKey)
	require.NoError(t, err)
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: leaf.PrivateKey}
}

// hasSPIFFEID gives a listener's certificate a SPIFFE ID, as sidecars have one.
func hasSPIFFEID(t *testing.T, listener *envoy.Listener, id string) {
	t.Helper()
	issuer, err := tls.X509KeyPair(shared.CA.PEM().Certificate, shared.CA.PEM().Key)
	require.NoError(t, err)
	pair, err := tls.X509KeyPair(listener.Identity.Certificate, listener.Identity.Key)
	require.NoError(t, err)
	uri, err := url.Parse(id)
	require.NoError(t, err)
	template := *pair.Leaf
	template.URIs = []*url.URL{uri}
	der, err := x509.CreateCertificate(rand.Reader, &template, shared.CA.Certificate(), pair.Leaf.PublicKey, issuer.PrivateKey)
	require.NoError(t, err)
	listener.Identity.Certificate = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// What clients write themselves is worth nothing, however a proxy is configured, and both sides are told why.
func TestHeadersThroughEnvoy(t *testing.T) {
	t.Parallel()
	const victim, nobody = "URI=" + meshAgents + "a", "spiffe://lab.test/nobody"
	principal := newPrincipal(t, lab.PrincipalOptions{Args: []string{"--insecure-plaintext", meshAuth}})
	hops := newPrincipal(t, lab.PrincipalOptions{Args: []string{"--insecure-plaintext", meshAuth, "--xfcc-hop=2", "--trusted-proxies=" + gatewayID}})
	front := func(p *lab.Principal, change func(*envoy.Listener)) string {
		listener := serving(t)
		change(&listener)
		return startEnvoy(t, envoy.Options{Name: "hub-envoy", Listener: listener, Backend: envoy.Backend{Address: p.Address}}).Address
	}
	right := front(principal, func(*envoy.Listener) {})
	named := front(principal, func(l *envoy.Listener) { l.ForwardSubject = true })
	anonymous := front(principal, func(l *envoy.Listener) { l.Anonymous = true })
	appending := func(l *envoy.Listener) { l.Forward = envoy.AppendForward }
	appends, careless := front(principal, appending), front(principal, func(l *envoy.Listener) { l.Forward = envoy.AlwaysForward })
	behindTwo := front(hops, func(l *envoy.Listener) {
		appending(l)
		hasSPIFFEID(t, l, "spiffe://lab.test/sidecar")
	})
	gateway := func(change func(*envoy.Listener)) string {
		listener := serving(t)
		change(&listener)
		return startEnvoy(t, envoy.Options{Name: "hub-gateway", Listener: listener, Backend: originating(t, behindTwo, gatewayID)}).Address
	}
	outer, outerAppends := gateway(func(*envoy.Listener) {}), gateway(appending)
	evil := leafOf(t, nobody)
	for name, c := range map[string]struct {
		principal *lab.Principal
		visitor   visitor
		reason    string
	}{
		"a forged header is replaced":                     {principal, visitor{right, evil, []string{victim}}, `its SPIFFE ID "` + nobody + `" is of no form`},
		"a forged header, twice":                          {principal, visitor{right, evil, []string{victim, victim}}, `its SPIFFE ID "` + nobody + `" is of no form`},
		"a forged header without a certificate":           {principal, visitor{anonymous, nil, []string{victim}}, "there is none: have the proxy ask its clients"},
		"no certificate":                                  {principal, visitor{anonymous, nil, nil}, "there is none: have the proxy ask its clients"},
		"a certificate with two URIs":                     {principal, visitor{right, leafOf(t, meshAgents+"a", nobody), nil}, "it has 2 URIs"},
		"a certificate without a URI":                     {principal, visitor{right, leafOf(t), nil}, "it has no URI"},
		"a URI with another element in it":                {principal, visitor{right, leafOf(t, nobody+","+victim), nil}, "it has 2 elements"},
		"a URI with another key in it":                    {principal, visitor{right, leafOf(t, nobody+";"+victim), nil}, "it has 2 URIs"},
		"a subject with the rest of a header in it":       {principal, visitor{named, leafNamed(t, `x",`+victim+`;Subject="`, nobody), nil}, `its SPIFFE ID "` + nobody + `" is of no form`},
		"an encoded header, passed on":                    {principal, visitor{careless, evil, []string{strings.ReplaceAll(victim, "=", "%3D")}}, "want pairs of key=value"},
		"an encoded URI, passed on":                       {principal, visitor{careless, evil, []string{"URI=spiffe://lab.test/agent/%61"}}, "is no SPIFFE ID"},
		"a header twice, passed on":                       {principal, visitor{careless, evil, []string{victim, victim}}, "it has 2 elements"},
		"no header, passed on":                            {principal, visitor{careless, evil, nil}, "there is none"},
		"an element before the proxy's":                   {principal, visitor{appends, evil, []string{victim}}, "it has 2 elements"},
		"an element before those of two proxies":          {hops, visitor{outer, evil, []string{victim}}, `its SPIFFE ID "` + nobody + `" is of no form`},
		"an element before that of a proxy that appends":  {hops, visitor{outerAppends, evil, []string{victim}}, "it has 3 elements, and the setting --xfcc-hop allows 2"},
		"a URI with another element in it, twice proxied": {hops, visitor{outer, leafOf(t, nobody+","+victim), nil}, "it has 3 elements, and the setting --xfcc-hop allows 2"},
		"past the first of two proxies":                   {hops, visitor{behindTwo, evil, nil}, `its SPIFFE ID "` + nobody + `" is of no form`},
		"a proxy's element within one's own URI":          {hops, visitor{behindTwo, leafOf(t, meshAgents+"a,URI="+gatewayID), nil}, "not what proxies in a row write"},
		"an element of one's own, as if one were a proxy": {hops, visitor{behindTwo, evil, []string{victim}}, "which is no trusted proxy"},
	} {
		t.Run(name, func(t *testing.T) {
			mark := c.principal.Mark()
			require.Contains(t, c.visitor.refused(t), c.reason)
			saysNow(t, c.principal, mark, "Refused connection", logged(c.reason))
		})
	}

	// Whoever is right is served, through one proxy or two.
	for address, p := range map[string]*lab.Principal{right: principal, outer: hops} {
		name := unique("rightly")
		reached := *p
		reached.Address = address
		meshSite(t, name, &reached, meshPair(t, name)).newTwin("mine").create(t).arrives(t)
	}
}

// logged is a text as a log has it.
func logged(text string) string { return strings.ReplaceAll(text, `"`, `\"`) }

// A real agent without a certificate, through its own sidecar, says why it is refused.
func TestAgentWithoutCertificateBehindEnvoy(t *testing.T) {
	t.Parallel()
	principal := newPrincipal(t, lab.PrincipalOptions{Args: []string{"--insecure-plaintext", meshAuth}})
	listener := serving(t)
	listener.Anonymous = true
	hub := startEnvoy(t, envoy.Options{Name: "hub-envoy", Listener: listener, Backend: envoy.Backend{Address: principal.Address}})
	spoke := startEnvoy(t, envoy.Options{
		Name: "spoke-envoy", Backend: envoy.Backend{Address: hub.Address, Identity: &envoy.Identity{CA: shared.CA.PEM().Certificate}},
	})
	mark := principal.Mark()
	s := newSite(t, unique("without-certificate"), lab.AgentOptions{Principal: principal.Behind(spoke), Args: []string{"--insecure-plaintext"}})
	reason := "header x-forwarded-client-cert of the connection from 127.0.0.1"
	says(t, s.agent, reason, "set forward_client_cert_details to SANITIZE_SET")
	saysNow(t, principal, mark, "Refused connection", reason)
	require.NotContains(t, logSince(t, s.agent.LogPath(), 0), lab.ConnectedAgentLine)
}

// A real agent whose own sidecar writes the header says why it is refused, and so does the principal.
func TestAgentsWithHeadersOfTheirOwn(t *testing.T) {
	t.Parallel()
	victim := "URI=" + meshAgents + "victim"
	sidecar := newPrincipal(t, lab.PrincipalOptions{Args: []string{"--insecure-plaintext", meshAuth}})
	direct := newPrincipal(t, lab.PrincipalOptions{Args: []string{meshAuth, "--trusted-proxies=" + gatewayID}})
	listener := serving(t)
	listener.Forward = envoy.AlwaysForward
	careless := startEnvoy(t, envoy.Options{Name: "hub-envoy", Listener: listener, Backend: envoy.Backend{Address: sidecar.Address}})
	for name, c := range map[string]struct {
		principal *lab.Principal
		address   string // that the agent's sidecar connects to
		header    string
		reason    string
	}{
		"elsewhere":    {direct, direct.Address, victim, "which counts only from a trusted proxy"},
		"twice":        {sidecar, careless.Address, victim + "," + victim, "it has 2 elements: have the proxy replace what its clients send"},
		"two-uris":     {sidecar, careless.Address, victim + ";" + victim, "it has 2 URIs among its alternative names"},
		"no-uri":       {sidecar, careless.Address, `Subject="CN=victim,URI=` + meshAgents + `victim"`, "it has no URI among its alternative names"},
		"encoded":      {sidecar, careless.Address, strings.ReplaceAll(victim, "=", "%3D"), "want pairs of key=value"},
		"encoded-uri":  {sidecar, careless.Address, "URI=" + meshAgents + "%76ictim", "is no SPIFFE ID"},
		"other-domain": {sidecar, careless.Address, "URI=spiffe://other.test/agent/victim", "is of no form in the hub's setting --auth"},
		"other-path":   {sidecar, careless.Address, "URI=spiffe://lab.test/agents/victim", "is of no form in the hub's setting --auth"},
		"no-certificate": {
			sidecar, careless.Address, "By=spiffe://lab.test/principal;Hash=" + strings.Repeat("0", 64) + `;Subject="";URI=`, "it has no URI among its alternative names",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			mark := c.principal.Mark()
			own := startEnvoy(t, envoy.Options{
				Name: "spoke-envoy", Listener: envoy.Listener{Headers: map[string]string{xfcc.Header: c.header}},
				Backend: originating(t, c.address, "spiffe://lab.test/nobody"),
			})
			s := newSite(t, "lying", lab.AgentOptions{
				Principal: c.principal.Behind(own), Args: []string{"--insecure-plaintext"}, Certificates: &lab.Certificates{},
			})
			says(t, s.agent, c.reason, "Connection to principal failed; retrying")
			saysNow(t, c.principal, mark, "Refused connection", c.reason)
			require.NotContains(t, logSince(t, s.agent.LogPath(), 0), lab.ConnectedAgentLine)
		})
	}
}
