package identity_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"math/big"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/peer"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/pki"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestParseAgent(t *testing.T) {
	for _, name := range []string{"a", "agent-a", "0", "cluster-1", strings.Repeat("a", 63)} {
		agent, err := identity.ParseAgent(name, "argocd")
		require.NoError(t, err)
		require.Equal(t, identity.Agent(name), agent)
	}
	for name, problem := range map[string]string{
		"":                        "a lowercase RFC 1123 label must consist of",
		strings.Repeat("a", 64):   "must be no more than 63 characters",
		strings.Repeat("a", 9999): "must be no more than 63 characters",
		"Agent-A":                 "a lowercase RFC 1123 label must consist of",
		"agent.a":                 "must not contain dots",
		"agent_a":                 "a lowercase RFC 1123 label must consist of",
		"agent a":                 "a lowercase RFC 1123 label must consist of",
		"agent\na":                "a lowercase RFC 1123 label must consist of",
		"agént":                   "a lowercase RFC 1123 label must consist of",
		"../argocd":               "a lowercase RFC 1123 label must consist of",
		"-agent":                  "a lowercase RFC 1123 label must consist of",
		"agent-":                  "a lowercase RFC 1123 label must consist of",
	} {
		_, err := identity.ParseAgent(name, "argocd")
		require.ErrorIs(t, err, identity.ErrAgentName)
		require.ErrorContains(t, err, problem)
		require.ErrorContains(t, err, "rename the agent")
		require.Less(t, len(err.Error()), 500)
	}
	_, err := identity.ParseAgent("argocd", "other", "argocd")
	require.ErrorIs(t, err, identity.ErrAgentName)
	require.ErrorContains(t, err, "the hub's own namespace")
}

func TestInvalidAuthErrorShowsExample(t *testing.T) {
	for value, problem := range map[string]string{
		"":                                      `method "" is not available`,
		"CN=([^,]+)":                            `method "CN=([^,]+)" is not available`,
		"spiffe":                                "begin with \"spiffe://\"",
		"spiffe://hub.test/agent":               "want {agent} in it, once",
		"spiffe://hub.test/{agent},":            "begin with \"spiffe://\"",
		"header:":                               "use x-forwarded-client-cert",
		"header:x-forwarded-client-cert:":       "regular expression is missing",
		"header:x-forwarded-client-cert:URI=.*": "no group in parentheses",
		"mtls":                                  "regular expression is missing",
		"mtls:":                                 "regular expression is missing",
		"mtls:subject:":                         "regular expression is missing",
		"mtls:uri:":                             "regular expression is missing",
		"mtls:subject:CN=([^,]+":                "missing closing )",
		"mtls:subject:CN=[^,]+":                 "no group in parentheses",
		"mtls:CN=(?:[^,]+)":                     "no group in parentheses",
		"header:x-client:(.*)":                  "use x-forwarded-client-cert",
		"userpass:/etc/agents.pass":             `method "userpass" is not available`,
	} {
		_, err := identity.New(identity.Options{Auth: value})
		require.ErrorContains(t, err, problem, value)
		require.ErrorContains(t, err, "mtls:subject:CN=([^,]+)", value)
	}
}

// holder is what a test puts into a certificate.
type holder struct {
	subject pkix.Name
	raw     pkix.RDNSequence // instead of a subject that Go would put in order
	uris    []string
}

func named(name string) holder { return holder{subject: pkix.Name{CommonName: name}} }

// issue signs a client certificate with a subject and URIs that package pki would not issue.
func issue(t *testing.T, ca *pki.CA, who holder) tls.Certificate {
	t.Helper()
	signer, err := ca.PEM().TLS()
	require.NoError(t, err)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		Subject:      who.subject,
		NotBefore:    time.Now().Add(-time.Minute),
		NotAfter:     time.Now().Add(time.Hour),
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	if who.raw != nil {
		template.RawSubject, err = asn1.Marshal(who.raw)
		require.NoError(t, err)
	}
	for _, text := range who.uris {
		parsed, err := url.Parse(text)
		require.NoError(t, err)
		template.URIs = append(template.URIs, parsed)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, ca.Certificate(), key.Public(), signer.PrivateKey)
	require.NoError(t, err)
	leaf, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

func newCA(t *testing.T) *pki.CA {
	t.Helper()
	ca, err := pki.NewCA(pki.CAOptions{CommonName: "CA"})
	require.NoError(t, err)
	return ca
}

type answer struct {
	peer identity.Peer
	err  error
}

// ask makes one real gRPC call, and returns what the authenticator makes of its caller.
func ask(t *testing.T, authenticator *identity.Authenticator, server, client credentials.TransportCredentials) answer {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	answers := make(chan answer, 1)
	grpcServer := grpc.NewServer(grpc.Creds(server), grpc.UnaryInterceptor(
		func(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
			found, err := authenticator.Authenticate(ctx)
			answers <- answer{found, err}
			return handler(ctx, request)
		}))
	grpc_health_v1.RegisterHealthServer(grpcServer, health.NewServer())
	done := make(chan error, 1)
	go func() { done <- grpcServer.Serve(listener) }()
	defer func() {
		grpcServer.Stop()
		require.NoError(t, <-done)
	}()
	conn, err := grpc.NewClient("passthrough:///"+listener.Addr().String(), grpc.WithTransportCredentials(client))
	require.NoError(t, err)
	defer conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	_, err = grpc_health_v1.NewHealthClient(conn).Check(ctx, &grpc_health_v1.HealthCheckRequest{})
	require.NoError(t, err)
	return <-answers
}

// meet asks over mutual TLS.
func meet(t *testing.T, auth string, ca *pki.CA, certificate tls.Certificate) answer {
	t.Helper()
	authenticator, err := identity.New(identity.Options{Auth: auth, Reserved: []string{"argocd"}})
	require.NoError(t, err)
	return ask(t, authenticator, serverCredentials(t, ca, tls.RequireAndVerifyClientCert), clientCredentials(ca, certificate))
}

func serverCredentials(t *testing.T, ca *pki.CA, clients tls.ClientAuthType) credentials.TransportCredentials {
	t.Helper()
	pair, err := ca.IssueServer(pki.ServerOptions{Addresses: []net.IP{net.IPv4(127, 0, 0, 1)}})
	require.NoError(t, err)
	loaded, err := pair.TLS()
	require.NoError(t, err)
	return credentials.NewTLS(&tls.Config{Certificates: []tls.Certificate{loaded}, ClientAuth: clients, ClientCAs: pool(ca)})
}

func clientCredentials(ca *pki.CA, certificates ...tls.Certificate) credentials.TransportCredentials {
	return credentials.NewTLS(&tls.Config{Certificates: certificates, RootCAs: pool(ca)})
}

func pool(ca *pki.CA) *x509.CertPool {
	trusted := x509.NewCertPool()
	trusted.AddCert(ca.Certificate())
	return trusted
}

func TestAuthenticateReadsAgentNameFromCertificate(t *testing.T) {
	ca := newCA(t)
	const id = "spiffe://example.org/ns/argocd/sa/agent-a"
	full := pkix.Name{CommonName: "agent-a", Organization: []string{"Example, Inc."}, OrganizationalUnit: []string{"spokes"}}
	tests := map[string]struct {
		auth string
		who  holder
	}{
		"the default":               {identity.DefaultAuth, named("agent-a")},
		"the default, long subject": {identity.DefaultAuth, holder{subject: full}},
		"subject":                   {"mtls:subject:^CN=([^,]+),OU=spokes,", holder{subject: full}},
		"another attribute":         {"mtls:subject:OU=([^,]+)", holder{subject: pkix.Name{CommonName: "x", OrganizationalUnit: []string{"agent-a"}}}},
		"more groups than needed":   {"mtls:subject:CN=(agent-([a-z]))", named("agent-a")},
		"uri":                       {`mtls:uri:^spiffe://example\.org/ns/argocd/sa/([^/]+)$`, holder{subject: named("ignored").subject, uris: []string{id}}},
		"uri, not anchored":         {`mtls:uri:/sa/([^/]+)`, holder{uris: []string{id}}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := meet(t, test.auth, ca, issue(t, ca, test.who))
			require.NoError(t, got.err)
			require.Equal(t, identity.Agent("agent-a"), got.peer.Agent)
		})
	}
}

func TestPeerHasCertificateAndAddress(t *testing.T) {
	ca := newCA(t)
	certificate := issue(t, ca, holder{subject: named("agent-a").subject, uris: []string{"spiffe://example.org/agent-a"}})
	got := meet(t, identity.DefaultAuth, ca, certificate)
	require.NoError(t, got.err)
	require.Len(t, got.peer.Certificates, 1)
	require.True(t, certificate.Leaf.Equal(got.peer.Certificates[0]))
	require.True(t, got.peer.NotAfter.Equal(certificate.Leaf.NotAfter))
	require.Equal(t, "CN=agent-a", got.peer.Subject)
	require.Contains(t, got.peer.Address, "127.0.0.1:")
}

func TestPeerExpiresWithItsCA(t *testing.T) {
	ca, err := pki.NewCA(pki.CAOptions{CommonName: "short", Validity: pki.Validity{NotAfter: time.Now().Add(10 * time.Minute)}})
	require.NoError(t, err)
	got := meet(t, identity.DefaultAuth, ca, issue(t, ca, named("agent-a")))
	require.NoError(t, got.err)
	require.True(t, got.peer.NotAfter.Equal(ca.Certificate().NotAfter))
}

func TestAuthenticateRefusesAmbiguousCertificates(t *testing.T) {
	ca := newCA(t)
	const id = "spiffe://example.org/ns/argocd/sa/agent-a"
	tests := map[string]struct {
		auth    string
		who     holder
		kind    error
		problem string
	}{
		"no match": {"mtls:subject:OU=([^,]+)", named("agent-a"), identity.ErrUnauthenticated,
			`its subject "CN=agent-a" does not match OU=([^,]+)`},
		"two matches": {"mtls:subject:CN=([^,+]+)",
			holder{subject: pkix.Name{CommonName: "agent-a", Organization: []string{"CN=agent-b"}}}, identity.ErrUnauthenticated, "more than one place"},
		"a match before the common name": {"mtls:subject:CN=([^,+]+)",
			holder{subject: pkix.Name{CommonName: "agent-a", SerialNumber: "CN=agent-b"}}, identity.ErrUnauthenticated, "more than one place"},
		"two common names": {identity.DefaultAuth,
			holder{subject: pkix.Name{ExtraNames: []pkix.AttributeTypeAndValue{commonName("agent-a"), commonName("agent-b")}}},
			identity.ErrUnauthenticated, "2 common names"},
		"a comma in the name": {identity.DefaultAuth, named("agent-a,CN"), identity.ErrAgentName, "RFC 1123 label"},
		"an upper-case name":  {identity.DefaultAuth, named("Agent-A"), identity.ErrAgentName, "RFC 1123 label"},
		"the hub's namespace": {identity.DefaultAuth, named("argocd"), identity.ErrAgentName, "hub's own namespace"},
		"an empty group":      {"mtls:subject:CN=(x*)", named("agent-a"), identity.ErrAgentName, "RFC 1123 label"},
		"no URI":              {"mtls:uri:/sa/([^/]+)", named("agent-a"), identity.ErrUnauthenticated, "no URI"},
		"two URIs": {"mtls:uri:/sa/([^/]+)", holder{uris: []string{id, "spiffe://example.org/ns/argocd/sa/agent-b"}},
			identity.ErrUnauthenticated, "2 URIs"},
		"another trust domain": {`mtls:uri:^spiffe://example\.org/ns/argocd/sa/([^/]+)$`,
			holder{uris: []string{"spiffe://elsewhere.org/ns/argocd/sa/agent-a"}}, identity.ErrUnauthenticated, "does not match"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := meet(t, test.auth, ca, issue(t, ca, test.who))
			require.ErrorIs(t, got.err, test.kind)
			require.ErrorContains(t, got.err, test.problem)
			require.Contains(t, got.err.Error(), "127.0.0.1:")
			require.Equal(t, identity.Peer{}, got.peer)
		})
	}
}

// commonName and its like return attributes of a subject that Go itself would not write.
func commonName(value any) pkix.AttributeTypeAndValue {
	return pkix.AttributeTypeAndValue{Type: asn1.ObjectIdentifier{2, 5, 4, 3}, Value: value}
}

func organization(value string) pkix.AttributeTypeAndValue {
	return pkix.AttributeTypeAndValue{Type: asn1.ObjectIdentifier{2, 5, 4, 10}, Value: value}
}

func private(value string) pkix.AttributeTypeAndValue {
	return pkix.AttributeTypeAndValue{Type: asn1.ObjectIdentifier{1, 2, 3}, Value: value}
}

// whole are the spellings of the setting by which the common name is the agent's name.
func whole() []string {
	return []string{identity.DefaultAuth, "mtls:CN=([^,]+)", "mtls:subject:CN=([^,]+)"}
}

// No text of another attribute passes for a common name.
func TestOtherSubjectAttributesAreNoCommonName(t *testing.T) {
	ca := newCA(t)
	for name, who := range map[string]holder{
		"an organisation":                 {subject: pkix.Name{Organization: []string{"CN=victim"}}},
		"a unit":                          {subject: pkix.Name{OrganizationalUnit: []string{"CN=victim"}}},
		"a serial number":                 {subject: pkix.Name{SerialNumber: "CN=victim"}},
		"several organisations":           {subject: pkix.Name{Organization: []string{"Example", "CN=victim"}}},
		"behind a comma":                  {subject: pkix.Name{Organization: []string{"Example,CN=victim"}}},
		"behind an escaped comma":         {subject: pkix.Name{Organization: []string{`Example\,CN=victim`}}},
		"behind two backslashes":          {subject: pkix.Name{Organization: []string{`Example\\,CN=victim`}}},
		"behind a plus":                   {subject: pkix.Name{Organization: []string{"Example+CN=victim"}}},
		"on a line of its own":            {subject: pkix.Name{Organization: []string{"Example\nCN=victim"}}},
		"in a part of many values":        {raw: pkix.RDNSequence{{organization("Example"), organization("CN=victim")}}},
		"an attribute that nobody knows":  {raw: pkix.RDNSequence{{private("CN=victim")}}},
		"an empty one beside a trick":     {raw: pkix.RDNSequence{{commonName("")}, {organization("CN=victim")}}},
		"nothing":                         {raw: pkix.RDNSequence{}},
		"two":                             {raw: pkix.RDNSequence{{commonName("agent-a")}, {commonName("victim")}}},
		"two in a part of many values":    {raw: pkix.RDNSequence{{commonName("agent-a"), commonName("victim")}}},
		"the same twice":                  {raw: pkix.RDNSequence{{commonName("victim")}, {commonName("victim")}}},
		"one with a second one inside it": named("agent-a,CN=victim"),
		"one with a plus inside it":       named("victim+CN=agent-a"),
		"one with a line inside it":       named("victim\n"),
		"one with spaces around it":       named(" victim "),
		"one with a backslash behind it":  named(`victim\`),
	} {
		for _, auth := range whole() {
			got := meet(t, auth, ca, issue(t, ca, who))
			require.Error(t, got.err, "%s: %s", name, auth)
			require.Equal(t, identity.Peer{}, got.peer)
		}
	}
}

// Whatever else a subject has, its common name is the agent's name.
func TestCommonNameIsFoundAmongOtherAttributes(t *testing.T) {
	ca := newCA(t)
	for name, who := range map[string]holder{
		"before a trick":                {subject: pkix.Name{CommonName: "agent-a", Organization: []string{"CN=victim"}}},
		"behind a trick":                {subject: pkix.Name{CommonName: "agent-a", SerialNumber: "CN=victim"}},
		"behind an escaped comma":       {subject: pkix.Name{CommonName: "agent-a", SerialNumber: `x\,CN=victim`}},
		"in a part of many values":      {raw: pkix.RDNSequence{{organization("Example"), commonName("agent-a")}}},
		"first in a part of many":       {raw: pkix.RDNSequence{{commonName("agent-a"), organization("CN=victim")}}},
		"behind what nobody knows":      {raw: pkix.RDNSequence{{private("CN=victim")}, {commonName("agent-a")}}},
		"behind a name with characters": {raw: pkix.RDNSequence{{organization(`Ex, "amp"; <le>+`)}, {commonName("agent-a")}}},
	} {
		for _, auth := range whole() {
			got := meet(t, auth, ca, issue(t, ca, who))
			require.NoError(t, got.err, "%s: %s", name, auth)
			require.Equal(t, identity.Agent("agent-a"), got.peer.Agent)
		}
	}
}

func TestUnverifiedCertificateIsUnauthenticated(t *testing.T) {
	ca, stranger := newCA(t), newCA(t)
	authenticator, err := identity.New(identity.Options{Auth: identity.DefaultAuth})
	require.NoError(t, err)
	tests := map[string]struct {
		server, client credentials.TransportCredentials
		problem        string
	}{
		"plain text": {insecure.NewCredentials(), insecure.NewCredentials(), "does not use TLS"},
		"no certificate": {serverCredentials(t, ca, tls.VerifyClientCertIfGiven), clientCredentials(ca),
			"no verified client certificate"},
		"a certificate that nobody verified": {serverCredentials(t, ca, tls.RequireAnyClientCert),
			clientCredentials(ca, issue(t, ca, named("agent-a"))), "no verified client certificate"},
		"a stranger's certificate that nobody verified": {serverCredentials(t, stranger, tls.RequireAnyClientCert),
			clientCredentials(stranger, issue(t, stranger, named("agent-a"))), "no verified client certificate"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := ask(t, authenticator, test.server, test.client)
			require.ErrorIs(t, got.err, identity.ErrUnauthenticated)
			require.ErrorContains(t, got.err, test.problem)
		})
	}
	_, err = authenticator.Authenticate(t.Context())
	require.ErrorIs(t, err, identity.ErrUnauthenticated)
	_, err = authenticator.Authenticate(peer.NewContext(t.Context(), &peer.Peer{}))
	require.ErrorIs(t, err, identity.ErrUnauthenticated)
}

const (
	kubeproxy    = "argocd-agent-kubeproxy"
	kubeproxyURI = "spiffe://example.org/ns/argocd/sa/argocd-agent-kubeproxy"
)

// A mesh vouches for the URI of a certificate, and lets anybody choose its common name. So a name in a field that --auth does not
// read makes nobody a component, nor keeps an agent from being one.
func TestComponentIsKnownByTheFieldThatAuthReads(t *testing.T) {
	ca := newCA(t)
	const byURI, agent = `mtls:uri:^spiffe://example\.org/ns/[^/]+/sa/([^/]+)$`, "spiffe://example.org/ns/evil/sa/anything"
	for name, test := range map[string]struct {
		auth, named string
		who         holder
		component   bool
	}{
		"URI":                          {byURI, kubeproxyURI, holder{uris: []string{kubeproxyURI}}, true},
		"common name beside a URI":     {byURI, kubeproxy, holder{subject: named(kubeproxy).subject, uris: []string{agent}}, false},
		"common name without a URI":    {byURI, kubeproxy, named(kubeproxy), false},
		"one of two URIs":              {byURI, kubeproxyURI, holder{uris: []string{kubeproxyURI, agent}}, false},
		"common name":                  {identity.DefaultAuth, kubeproxy, named(kubeproxy), true},
		"common name, subject is read": {"mtls:subject:^CN=([^,]+)", kubeproxy, named(kubeproxy), true},
		"URI beside a common name":     {identity.DefaultAuth, kubeproxyURI, holder{subject: named("a").subject, uris: []string{kubeproxyURI}}, false},
		"organisation":                 {identity.DefaultAuth, kubeproxy, holder{subject: pkix.Name{Organization: []string{kubeproxy}}}, false},
		"two common names":             {identity.DefaultAuth, kubeproxy, holder{raw: pkix.RDNSequence{{commonName("a")}, {commonName(kubeproxy)}}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			authenticator, err := identity.New(identity.Options{Auth: test.auth, Components: identity.Components{test.named: {"kube"}}})
			require.NoError(t, err)
			want := ""
			if test.component {
				want = test.named
			}
			require.Equal(t, want, authenticator.ComponentOf(proofOf(issue(t, ca, test.who))))
		})
	}
}

func TestParseComponents(t *testing.T) {
	targets := []string{"kube", "redis"}
	components, err := identity.ParseComponents([]string{kubeproxy + "=kube", "both=kube", "both=redis", "spiffe://x/a=b=redis"}, targets)
	require.NoError(t, err)
	require.Equal(t, identity.Components{kubeproxy: {"kube"}, "both": {"kube", "redis"}, "spiffe://x/a=b": {"redis"}}, components)
	for _, entry := range []string{"", kubeproxy, "=kube", kubeproxy + "=", kubeproxy + "=shell", kubeproxy + "=kube,redis"} {
		_, err := identity.ParseComponents([]string{entry}, targets)
		require.ErrorContains(t, err, "NAME=kube or NAME=redis", entry)
	}
	authenticator, err := identity.New(identity.Options{Auth: "mtls:uri:/sa/(.+)", Components: identity.Components{kubeproxy: nil, kubeproxyURI: nil}})
	require.NoError(t, err)
	require.Equal(t, []string{kubeproxy}, authenticator.Unmatched())
}

// proofOf is what somebody has shown who presented a certificate.
func proofOf(certificate tls.Certificate) identity.Proof {
	return identity.Certified([]*x509.Certificate{certificate.Leaf})
}

// Whoever reads a cluster Secret on the hub has what is in it, which makes nobody an agent or a component.
func TestCertificateOfACallerIsNobodyElses(t *testing.T) {
	ca := newCA(t)
	const caller = "spiffe://argocd-agent/caller/agent-a"
	pair, err := ca.IssueClient(pki.ClientOptions{Caller: "agent-a"})
	require.NoError(t, err)
	issued, err := pair.TLS()
	require.NoError(t, err)
	found, err := identity.CallerOf(proofOf(issued))
	require.NoError(t, err)
	require.Equal(t, identity.Caller{TrustDomain: identity.CallerTrustDomain, Agent: "agent-a"}, found)
	require.Equal(t, caller, found.URI().String())
	require.Empty(t, issued.Leaf.Subject.CommonName)
	certificates := map[string]tls.Certificate{
		"as it is issued":           issued,
		"with a common name":        issue(t, ca, holder{subject: named("agent-a").subject, uris: []string{caller}}),
		"with a component's":        issue(t, ca, holder{subject: named(kubeproxy).subject, uris: []string{caller}}),
		"of another trust domain":   issue(t, ca, holder{subject: named("agent-a").subject, uris: []string{"spiffe://example.org/caller/agent-a"}}),
		"of no agent":               issue(t, ca, holder{subject: named("agent-a").subject, uris: []string{"spiffe://example.org/caller"}}),
		"beside another URI":        issue(t, ca, holder{subject: named("agent-a").subject, uris: []string{"spiffe://example.org/sa/agent-a", caller}}),
		"encoded":                   issue(t, ca, holder{subject: named("agent-a").subject, uris: []string{"spiffe://example.org/%63aller/agent-a"}}),
		"of what can be no agent's": issue(t, ca, holder{subject: named("agent-a").subject, uris: []string{"spiffe://example.org/caller/a/b"}}),
	}
	for name, certificate := range certificates {
		for _, auth := range append(whole(), "mtls:subject:CN=(.+)", "mtls:uri:/([^/]+)$") {
			got := meet(t, auth, ca, certificate)
			require.ErrorIs(t, got.err, identity.ErrUnauthenticated, "%s: %s", name, auth)
			require.ErrorContains(t, got.err, "caller of kubeproxy")
			authenticator, err := identity.New(identity.Options{Auth: auth, Components: identity.Components{kubeproxy: nil, caller: nil}})
			require.NoError(t, err)
			require.Empty(t, authenticator.ComponentOf(proofOf(certificate)), "%s: %s", name, auth)
		}
	}
}

func TestOnlyTheWholeURIIsACallers(t *testing.T) {
	ca := newCA(t)
	for _, uris := range [][]string{
		nil, {"spiffe://x/caller/a", "spiffe://x/caller/b"}, {"https://x/caller/a"}, {"spiffe://x/caller/"}, {"spiffe://x/caller/a/"},
		{"spiffe://x/callers/a"}, {"spiffe://x/y/caller/a"}, {"spiffe://x/caller/A"}, {"spiffe://x/caller/a?b"}, {"spiffe://x/caller/%61"},
		{"spiffe://x@y/caller/a"}, {"spiffe:x/caller/a"}, {"spiffe://x/caller/a#b"},
	} {
		_, err := identity.CallerOf(proofOf(issue(t, ca, holder{subject: named("a").subject, uris: uris})))
		require.Error(t, err, "%v", uris)
	}
}
