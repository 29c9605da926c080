package live

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/agent/policy"
)

// dialTimeout is how long it may take to connect to the API server, and how often a connection that nothing is said on is
// checked: the values that client-go has otherwise.
const dialTimeout = 30 * time.Second

// Policy decides about requests.
type Policy interface {
	// Decide says whether a request is allowed. Its error is an API server's status where it is the request's fault; any
	// other means that it could not be found out.
	Decide(ctx context.Context, q *policy.Request) (policy.Decision, error)
}

// Options configure a Handler.
type Options struct {
	// Config is for the spoke's API server, with the agent's own credentials.
	Config     *rest.Config
	Policy     Policy
	Registerer prometheus.Registerer
	Logger     *slog.Logger
}

// Handler serves the spoke's API server to the hub.
type Handler struct {
	options  Options
	proxy    *httputil.ReverseProxy
	upstream *upstream
	bodies   chan struct{} // a token for each body that is held in memory
	requests *prometheus.CounterVec
}

// New returns a handler. It opens no connection yet.
func New(o Options) (*Handler, error) {
	up, err := newUpstream(o.Config)
	if err != nil {
		return nil, fmt.Errorf("live: %w", err)
	}
	h := &Handler{
		options: o, upstream: up, bodies: make(chan struct{}, bodiesHeld),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "argocd_agent_resource_proxy_requests_total",
			Help: "Requests of the hub to this cluster's API server, by verb, outcome (allowed, denied, failed) and class of status code.",
		}, []string{"verb", "outcome", "code"}),
	}
	o.Registerer.MustRegister(h.requests)
	h.proxy = &httputil.ReverseProxy{
		Rewrite: up.rewrite, Transport: up, ModifyResponse: noRedirect, ErrorHandler: h.failed,
		BufferPool: newBuffers(), ErrorLog: slog.NewLogLogger(o.Logger.Handler(), slog.LevelDebug),
	}
	return h, nil
}

// Close closes the connections to the API server that nothing uses.
func (h *Handler) Close() { h.upstream.close() }

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a := &attempt{handler: h, writer: w, started: time.Now(), header: r.Header, outcome: failed}
	// Also when the proxy panics, which is how it cuts an answer off that it cannot finish.
	defer a.audit(r.Context())
	q, err := h.parse(r)
	if err != nil {
		a.outcome = denied
		refuse(a, err)
		return
	}
	a.request, a.query = q, r.URL
	body := &body{handler: h, request: r, writer: w}
	defer body.free()
	q.Body = body.read
	a.decision, err = h.options.Policy.Decide(r.Context(), q)
	switch {
	case err != nil:
		a.err = err
		refuse(a, asStatus(err))
		return
	case !a.decision.Allowed:
		a.outcome = denied
		refuse(a, a.decision.Forbidden(q))
		return
	}
	h.proxy.ServeHTTP(a, r.WithContext(context.WithValue(r.Context(), attemptKey{}, a)))
	if a.err == nil {
		a.outcome = allowed
	}
}

// parse reads a request, or refuses it.
func (h *Handler) parse(r *http.Request) (*policy.Request, error) {
	if err := checkHeader(r.Header); err != nil {
		return nil, err
	}
	return policy.Parse(r)
}

// attemptKey finds the attempt in a request's context.
type attemptKey struct{}

// failed answers when the API server does not.
func (h *Handler) failed(w http.ResponseWriter, r *http.Request, err error) {
	if a, ok := r.Context().Value(attemptKey{}).(*attempt); ok {
		a.err = err
	}
	refuse(w, unanswered(err))
}

// upstream is the API server. Each request has a connection of its own while it lasts, as the caller has one through the
// tunnel: nothing waits for anything else, and it costs half of what HTTP/2 does.
type upstream struct {
	base *url.URL
	// An upgrade turns its connection into something else. What is idle is only used again for requests that are none.
	requests, upgrades http.RoundTripper
}

func newUpstream(config *rest.Config) (*upstream, error) {
	config = rest.CopyConfig(config)
	config.NextProtos = []string{"http/1.1"}
	// What the caller did not ask to be compressed must not be: it would come back without its length.
	config.DisableCompression = true
	base, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, fmt.Errorf("the API server's address: %w", err)
	}
	u := &upstream{base: base}
	if u.requests, err = rest.TransportFor(config); err != nil {
		return nil, fmt.Errorf("the API server's credentials: %w", err)
	}
	if config.Dial == nil { // transports are shared by configurations that are equal
		config.Dial = (&net.Dialer{Timeout: dialTimeout, KeepAlive: dialTimeout}).DialContext
	}
	if u.upgrades, err = rest.TransportFor(config); err != nil {
		return nil, fmt.Errorf("the API server's credentials: %w", err)
	}
	return u, nil
}

// RoundTrip implements http.RoundTripper.
func (u *upstream) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Header.Get("Upgrade") != "" {
		// A GET is sent again when the connection breaks that it was sent on, if that was used before. One that is upgraded
		// may be an exec: it gets a new connection.
		utilnet.CloseIdleConnectionsFor(u.upgrades)
		return u.upgrades.RoundTrip(r)
	}
	return u.requests.RoundTrip(r)
}

func (u *upstream) close() {
	utilnet.CloseIdleConnectionsFor(u.requests)
	utilnet.CloseIdleConnectionsFor(u.upgrades)
}

// rewrite makes a request the agent's own.
func (u *upstream) rewrite(r *httputil.ProxyRequest) {
	out := r.Out
	out.URL.Scheme, out.URL.Host = u.base.Scheme, u.base.Host
	out.URL.Path = strings.TrimSuffix(u.base.Path, "/") + r.In.URL.Path
	out.Host = ""
	dropHeader(out.Header)
}

// noRedirect takes an answer that says to go elsewhere for what it is: an API server has no such answers, and where it
// points to is none of the hub's business.
func noRedirect(answer *http.Response) error {
	if answer.StatusCode >= 300 && answer.StatusCode < 400 && answer.Header.Get("Location") != "" {
		return errRedirect
	}
	return nil
}
