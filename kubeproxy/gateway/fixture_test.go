package gateway_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/logging/logtest"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/certs"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/pki"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/token"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/connlimit"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/tunnel"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/kubeproxy/callers"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/kubeproxy/gateway"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	// testTimeout is how long a test waits for what must happen.
	testTimeout = 2 * time.Minute
	// maxResponse is what an answer may have.
	maxResponse = 16 << 20
	// maxMemory is what it may take once it is decoded.
	maxMemory = 64 << 20
	// maxConnections and maxOfOne bound connections, all and those with one certificate.
	maxConnections, maxOfOne = 40, 10
	// allAgents is the name of a caller that may reach every agent.
	allAgents = "spiffe://example.org/argocd-server"
	// twoAgents is that of one that may reach "a" and "b".
	twoAgents = "spiffe://example.org/ns/argocd/sa/two"
)

// hub is a running gateway with the agents that it reaches.
type hub struct {
	ca       *pki.CA
	keys     *token.Keys
	roots    chan certs.Blocks // what is trusted from now on
	material *certs.Source
	address  string
	registry *prometheus.Registry
	log      *logtest.Log
	gateway  *gateway.Gateway
	stop     context.CancelFunc
	stopped  chan error

	mu     sync.Mutex
	agents map[string]string // address by name, of those that are connected
	away   map[string]error  // what dialling others comes to
	dials  int
}

// origin is an Origin that tests change.
type origin struct{ reports chan certs.Blocks }

func (origin) String() string { return "the test" }

func (o origin) Watch(ctx context.Context, report func(certs.Blocks, error)) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case blocks := <-o.reports:
			report(blocks, nil)
		}
	}
}

// open starts a hub.
func open(t *testing.T) *hub {
	t.Helper()
	return openFor(t, identity.Proxies{})
}

// openFor starts a hub behind proxies: without TLS if they are next to it.
func openFor(t *testing.T, proxies identity.Proxies) *hub {
	t.Helper()
	h := &hub{
		agents: map[string]string{}, away: map[string]error{}, registry: prometheus.NewRegistry(), log: &logtest.Log{},
		roots: make(chan certs.Blocks, 10), stopped: make(chan error, 1),
	}
	h.ca = newCA(t, "CA")
	h.material = h.follow(t)
	var err error
	h.keys, err = token.ParseKeys(newCA(t, "a key").PEM().Key)
	require.NoError(t, err)
	table, err := identity.ParseCallers(append(identity.DefaultCallers(), allAgents+"=*", twoAgents+"=a", twoAgents+"=b"))
	require.NoError(t, err)
	who := callers.New(callers.Options{
		Trust: identity.Verified(h.material, nil), Table: table, Tokens: h.keys,
		Proxies: proxies,
	})
	g := gateway.New(gateway.Options{
		Callers: who, Dial: h.dial, Timeout: testTimeout, HeaderTimeout: testTimeout, MaxResponse: maxResponse, MaxMemory: maxMemory,
		DrainTimeout: time.Second, MetricsAgents: 2, Registerer: h.registry,
		Logger: slog.New(slog.NewTextHandler(h.log, nil)),
	})
	h.gateway = g
	ctx, cancel := context.WithCancel(context.Background())
	h.stop = cancel
	listener, err := proxies.Listen(ctx, "127.0.0.1:0", slog.New(slog.NewTextHandler(h.log, nil)))
	require.NoError(t, err)
	h.address = listener.Addr().String()
	limit := connlimit.New(connlimit.Options{
		Total: maxConnections, Setting: "--max-connections", PerCertificate: maxOfOne, Logger: slog.New(slog.NewTextHandler(h.log, nil)),
	})
	secure := certs.ServerTLS(certs.ServerOptions{Source: h.material})
	if proxies.Local {
		secure = nil
	}
	var running sync.WaitGroup
	running.Go(func() { who.Run(ctx) })
	running.Go(func() { h.stopped <- g.Serve(ctx, limit.Listen(listener), secure) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return h
}

// follow returns the hub's TLS material, whose roots change with h.roots.
func (h *hub) follow(t *testing.T) *certs.Source {
	t.Helper()
	pair, err := h.ca.IssueServer(pki.ServerOptions{Names: []string{"kubeproxy"}, Addresses: []net.IP{net.IPv4(127, 0, 0, 1)}})
	require.NoError(t, err)
	source, err := certs.New(certs.Options{
		Name: "test", Pair: certs.Fixed("test", certs.Blocks{Certificate: pair.Certificate, Key: pair.Key}),
		Roots: origin{h.roots}, Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	h.trust(h.ca)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- source.Run(ctx) }()
	t.Cleanup(func() { cancel(); require.NoError(t, <-done) })
	require.NoError(t, source.Wait(withTimeout(t)))
	return source
}

// trust makes the hub trust these CAs, and no others.
func (h *hub) trust(cas ...*pki.CA) {
	var blocks certs.Blocks
	for _, a := range cas {
		blocks.CAs = append(blocks.CAs, a.PEM().Certificate...)
	}
	h.roots <- blocks
}

func withTimeout(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	t.Cleanup(cancel)
	return ctx
}

// dial implements gateway.Dial.
func (h *hub) dial(ctx context.Context, agent string) (net.Conn, error) {
	h.mu.Lock()
	h.dials++
	address, connected := h.agents[agent]
	err := h.away[agent]
	h.mu.Unlock()
	switch {
	case connected:
		return new(net.Dialer).DialContext(ctx, "tcp", address)
	case err != nil:
		return nil, fmt.Errorf("agent %q: %w", agent, err)
	default:
		return nil, fmt.Errorf("agent %q: %w", agent, tunnel.ErrUnknownAgent)
	}
}

// agent connects an agent that is served by the handler.
func (h *hub) agent(t *testing.T, name string, handler http.HandlerFunc) {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	h.connect(name, server.Listener.Addr().String())
}

func (h *hub) connect(name, address string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.agents[name] = address
}

// raw connects an agent that serves each connection with a function.
func (h *hub) raw(t *testing.T, name string, serve func(conn net.Conn, reader *bufio.Reader)) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				defer conn.Close()
				serve(conn, bufio.NewReader(conn))
			})
		}
	})
	t.Cleanup(func() { listener.Close(); h.stop(); serving.Wait() })
	h.connect(name, listener.Addr().String())
}

// certificate issues that of a caller of an agent, or of whoever has that SPIFFE ID, or after "CN=" that common name.
func (h *hub) certificate(t *testing.T, name string, validity ...pki.Validity) *tls.Certificate {
	t.Helper()
	o := pki.ClientOptions{Caller: identity.Agent(name)}
	if common, ok := strings.CutPrefix(name, "CN="); ok {
		o = pki.ClientOptions{CommonName: common}
	} else if strings.HasPrefix(name, "spiffe://") {
		o = pki.ClientOptions{SPIFFEID: name}
	}
	if len(validity) > 0 {
		o.Validity = validity[0]
	}
	pair, err := h.ca.IssueClient(o)
	require.NoError(t, err)
	certificate, err := pair.TLS()
	require.NoError(t, err)
	return &certificate
}

// config is that of a client with the certificate.
func (h *hub) config(certificate *tls.Certificate) *tls.Config {
	pool := x509.NewCertPool()
	pool.AddCert(h.ca.Certificate())
	c := &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS13}
	if certificate != nil {
		c.Certificates = []tls.Certificate{*certificate}
	}
	return c
}

// client returns one by that certificate name, for HTTP/2 or for HTTP/1.1.
func (h *hub) client(t *testing.T, name string, http2 bool) *http.Client {
	t.Helper()
	return h.clientOf(t, h.config(h.certificate(t, name)), http2)
}

func (h *hub) clientOf(t *testing.T, config *tls.Config, http2 bool) *http.Client {
	t.Helper()
	transport := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: http2, DisableCompression: true}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// both runs a test over HTTP/1.1 and over HTTP/2.
func both(t *testing.T, test func(t *testing.T, http2 bool)) {
	t.Helper()
	t.Run("HTTP/1.1", func(t *testing.T) { test(t, false) })
	t.Run("HTTP/2", func(t *testing.T) { test(t, true) })
}

// request makes one for the hub.
func (h *hub) request(t *testing.T, method, target string, body io.Reader) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(withTimeout(t), method, "https://"+h.address+target, body)
	require.NoError(t, err)
	return r
}

// answer is one without its body.
type answer struct {
	StatusCode int
	Header     http.Header
	Trailer    http.Header
	Close      bool
}

// read reads an answer to its end, and returns it with its body.
func read(t *testing.T, response *http.Response) (answer, string) {
	t.Helper()
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return answer{response.StatusCode, response.Header, response.Trailer, response.Close}, string(body)
}

// get asks, and returns the answer and its body.
func (h *hub) get(t *testing.T, client *http.Client, target string) (answer, string) {
	t.Helper()
	return do(t, client, h.request(t, http.MethodGet, target, http.NoBody))
}

func do(t *testing.T, client *http.Client, r *http.Request) (answer, string) {
	t.Helper()
	response, err := client.Do(r)
	require.NoError(t, err)
	return read(t, response)
}

// requireStatus fails unless the answer is a Status of Kubernetes with that code, reason and text.
func requireStatus(t *testing.T, response answer, body string, code int, reason, text string) {
	t.Helper()
	require.Equal(t, code, response.StatusCode, body)
	require.Equal(t, "application/json", response.Header.Get("Content-Type"))
	var status struct {
		Kind, APIVersion, Status, Message, Reason string
		Code                                      int
	}
	require.NoError(t, json.Unmarshal([]byte(body), &status), body)
	require.Equal(t, "Status", status.Kind)
	require.Equal(t, "v1", status.APIVersion)
	require.Equal(t, "Failure", status.Status)
	require.Equal(t, code, status.Code)
	require.Equal(t, reason, status.Reason)
	require.Contains(t, status.Message, text)
}

// dialTLS opens a connection for HTTP/1.1 by hand.
func (h *hub) dialTLS(t *testing.T, name string) *tls.Conn {
	t.Helper()
	return h.dialWith(t, h.certificate(t, name))
}

func (h *hub) dialWith(t *testing.T, certificate *tls.Certificate) *tls.Conn {
	t.Helper()
	conn, err := (&tls.Dialer{Config: h.config(certificate)}).DialContext(withTimeout(t), "tcp", h.address)
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(testTimeout)))
	secure, ok := conn.(*tls.Conn)
	require.True(t, ok)
	return secure
}

// say sends text as it is, and returns the response.
func (h *hub) say(t *testing.T, name, text string) (answer, string) {
	t.Helper()
	conn := h.dialTLS(t, name)
	_, err := io.WriteString(conn, text)
	require.NoError(t, err)
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(t, err)
	return read(t, response)
}

// counted returns the value of a counter or gauge by its labels' values, in the order of their names; 0 when there is none.
func (h *hub) counted(t *testing.T, metric string, labels ...string) float64 {
	t.Helper()
	families, err := h.registry.Gather()
	require.NoError(t, err)
	for _, family := range families {
		for _, series := range family.GetMetric() {
			var values []string
			for _, label := range series.GetLabel() {
				values = append(values, label.GetValue())
			}
			if family.GetName() == metric && strings.Join(values, ",") == strings.Join(labels, ",") {
				return series.GetCounter().GetValue() + series.GetGauge().GetValue() + float64(series.GetHistogram().GetSampleCount())
			}
		}
	}
	return 0
}

// eventually waits until something holds.
func eventually(t *testing.T, holds func() bool) {
	t.Helper()
	require.Eventually(t, holds, testTimeout, time.Millisecond)
}

// newCA makes one.
func newCA(t *testing.T, name string) *pki.CA {
	t.Helper()
	made, err := pki.NewCA(pki.CAOptions{CommonName: name})
	require.NoError(t, err)
	return made
}
