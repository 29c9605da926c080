package spire_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"log/slog"
	"math/big"
	"net"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	svidv1 "github.com/spiffe/spire-api-sdk/proto/spire/api/server/svid/v1"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/logging/logtest"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/certs"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/pki"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/principal/enrollment/spire"
)

const (
	principalID = "spiffe://hub.test/ns/argocd/sa/argocd-agent-principal"
	serverID    = "spiffe://hub.test/spire/server"
	auth        = "spiffe://spoke.test/agent/{agent},spiffe://hub.test/agent/{agent}"
	lifetime    = time.Hour
)

// authority is a CA, as SPIRE's server is one.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	return key
}

// template is that of a CA's certificate, of a trust domain.
func template(domain string) *x509.Certificate {
	return &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "CA of " + domain},
		NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(30 * 24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		URIs: []*url.URL{{Scheme: "spiffe", Host: domain}},
	}
}

// newAuthority returns the root of a trust domain.
func newAuthority(t *testing.T, domain string) *authority {
	t.Helper()
	root := &authority{key: newKey(t)}
	root.certificate = template(domain)
	root.certificate = root.sign(t, template(domain), root.key.Public())
	return root
}

// sign signs a certificate of a key.
func (a *authority) sign(t *testing.T, template *x509.Certificate, key any) *x509.Certificate {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, key, a.key)
	require.NoError(t, err)
	signed, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	return signed
}

// below returns a CA by this one.
func (a *authority) below(t *testing.T, template *x509.Certificate) *authority {
	t.Helper()
	key := newKey(t)
	return &authority{a.sign(t, template, key.Public()), key}
}

// issue issues an X.509-SVID.
func (a *authority) issue(t *testing.T, id string) certs.Blocks {
	t.Helper()
	key := newKey(t)
	uri, err := url.Parse(id)
	require.NoError(t, err)
	leaf := a.sign(t, &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(300 * 24 * time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
		URIs: []*url.URL{uri}, BasicConstraintsValid: true,
	}, key.Public())
	private, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	return certs.Blocks{Certificate: pemOf(leaf.Raw), Key: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})}
}

func pemOf(der []byte) []byte { return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}) }

// bundles are those of hub.test, with these roots, and of a trust domain that it is federated with.
func bundles(federated *authority, roots ...*authority) certs.Blocks {
	var own []byte
	for _, root := range roots {
		own = append(own, pemOf(root.certificate.Raw)...)
	}
	return certs.Blocks{Bundles: map[string][]byte{"hub.test": own, "spoke.test": pemOf(federated.certificate.Raw)}}
}

// memory is a certs.Origin that a test changes.
type memory chan certs.Blocks

func holding(blocks certs.Blocks) memory {
	m := make(memory, 10)
	m <- blocks
	return m
}

func (memory) String() string { return "the test" }

func (m memory) Watch(ctx context.Context, report func(certs.Blocks, error)) error {
	for {
		select {
		case blocks := <-m:
			report(blocks, nil)
		case <-ctx.Done():
			return nil
		}
	}
}

// answers is how a SPIRE server answers the request of a key: with a chain, or an error.
type answers func(s *server, key any) ([][]byte, error)

// server is a SPIRE server. That the connection is secured, and by whom, is real; what it answers is the test's.
type server struct {
	svidv1.UnimplementedSVIDServer

	t          *testing.T
	root, away *authority // of its trust domain, and of one that this is federated with

	mu       sync.Mutex // guards all below
	answer   answers
	requests []*svidv1.NewDownstreamX509CARequest
}

// NewDownstreamX509CA implements svidv1.SVIDServer.
func (s *server) NewDownstreamX509CA(_ context.Context, r *svidv1.NewDownstreamX509CARequest) (*svidv1.NewDownstreamX509CAResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = append(s.requests, r)
	csr, err := x509.ParseCertificateRequest(r.GetCsr())
	if err == nil {
		err = csr.CheckSignature()
	}
	if err != nil {
		return nil, err
	}
	chain, err := s.answer(s, csr.PublicKey)
	if err != nil {
		return nil, err
	}
	return &svidv1.NewDownstreamX509CAResponse{CaCertChain: chain, X509Authorities: [][]byte{s.away.certificate.Raw}}, nil
}

// answersBy has it answer otherwise from now on.
func (s *server) answersBy(answer answers) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer = answer
}

// asked is how often it was asked.
func (s *server) asked() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.requests)
}

// honest answers as SPIRE does.
func honest(s *server, key any) ([][]byte, error) {
	ca := template("hub.test")
	ca.Subject = pkix.Name{CommonName: "intermediate"}
	ca.NotAfter = time.Now().Add(time.Duration(s.requests[len(s.requests)-1].GetPreferredTtl()) * time.Second)
	return [][]byte{s.root.sign(s.t, ca, key).Raw}, nil
}

// principal is a Signer with what it needs, and the SPIRE server that it asks.
type principal struct {
	*spire.Signer
	*server

	svid, bundles memory
	certificates  *certs.Source
	registry      *prometheus.Registry
	log           *logtest.Log
}

// setup says what differs from a principal and a SPIRE server that are well.
type setup struct {
	answer     answers
	serverID   string
	serverRoot *authority // of the server's own X.509-SVID
	bundled    *authority // the root of hub.test that the principal knows
	auth       string
	bare       bool // it serves nothing
	absent     bool // it does not listen
}

// start runs them until the function that it returns is called.
func start(t *testing.T, c setup) (p *principal, stop func()) {
	t.Helper()
	s := &server{t: t, root: newAuthority(t, "hub.test"), away: newAuthority(t, "spoke.test"), answer: honest}
	if c.answer != nil {
		s.answer = c.answer
	}
	or := func(given, otherwise *authority) *authority {
		if given == nil {
			return otherwise
		}
		return given
	}
	if c.serverID == "" {
		c.serverID = serverID
	}
	if c.auth == "" {
		c.auth = auth
	}
	p = &principal{
		server: s, svid: holding(s.root.issue(t, principalID)), bundles: holding(bundles(s.away, or(c.bundled, s.root))),
		registry: prometheus.NewRegistry(), log: &logtest.Log{},
	}
	var running sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	source := func(pair, roots certs.Origin) *certs.Source {
		source, err := certs.New(certs.Options{Name: "svid", Pair: pair, Roots: roots, Logger: slog.New(slog.DiscardHandler)})
		require.NoError(t, err)
		running.Go(func() { _ = source.Run(ctx) })
		return source
	}
	p.certificates = source(p.svid, p.bundles)
	secure := certs.ServerCredentials(certs.ServerOptions{
		Source: source(holding(or(c.serverRoot, s.root).issue(t, c.serverID)), holding(bundles(s.away, s.root))),
	})
	listener, served := bufconn.Listen(1<<20), grpc.NewServer(grpc.Creds(secure), grpc.WaitForHandlers(true))
	if !c.bare {
		svidv1.RegisterSVIDServer(served, s)
	}
	running.Go(func() { _ = served.Serve(listener) })
	templates, err := identity.ParseAgentTemplates(c.auth, "hub.test")
	require.NoError(t, err)
	p.Signer, err = spire.New(spire.Options{
		Server: "passthrough:spire:8081", Certificates: p.certificates, Templates: templates, Lifetime: lifetime,
		Dial: []grpc.DialOption{grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			if c.absent {
				return nil, errors.New("connection refused at " + time.Now().String())
			}
			return listener.DialContext(ctx)
		})},
		Metrics: certs.NewMetrics(p.registry), Logger: slog.New(slog.NewTextHandler(p.log, nil)),
	})
	require.NoError(t, err)
	running.Go(func() { _ = p.Run(ctx) })
	return p, func() {
		cancel()
		served.Stop()
		running.Wait()
	}
}

// said is how many times a text was logged.
func (p *principal) said(text string) int { return strings.Count(p.log.String(), text) }

// signs asks for a certificate of an agent.
func (p *principal) signs(agent identity.Agent) ([]*x509.Certificate, error) {
	p.t.Helper()
	csr, _, err := pki.NewRequest(pki.KeyKind{}, string(agent))
	require.NoError(p.t, err)
	request, err := pki.ParseRequest(csr)
	require.NoError(p.t, err)
	text, err := p.Sign(p.t.Context(), agent, request)
	if err != nil {
		return nil, err
	}
	chain, err := certs.ParseCertificates(text)
	require.NoError(p.t, err)
	require.True(p.t, request.Key.Is(chain[0].PublicKey))
	return chain, nil
}

// metric returns the figure of a metric of the signer.
func (p *principal) metric(name, result string) float64 {
	p.t.Helper()
	families, err := p.registry.Gather()
	require.NoError(p.t, err)
	for _, family := range families {
		for _, m := range family.GetMetric() {
			labels := make(map[string]string)
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			if family.GetName() == name && labels["name"] == "signer" && labels["result"] == result {
				return m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	require.FailNow(p.t, "nothing counts that")
	return 0
}
