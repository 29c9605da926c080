package apiproxy

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/agent/policy"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/apihttp"
)

// Policy decides about requests.
type Policy interface {
	// Decide says whether a request is allowed. Its error is an *apihttp.Error where it is the request's fault; any
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
		Rewrite: up.rewrite, Transport: up, ModifyResponse: apihttp.RefuseRedirect, ErrorHandler: h.failed,
		BufferPool: apihttp.NewBufferPool(chunk), ErrorLog: slog.NewLogLogger(o.Logger.Handler(), slog.LevelDebug),
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
		refuse(a, undecided(err))
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
		refuse(a, undecided(err))
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
	if err := apihttp.CheckHeaders(r.Header); err != nil {
		return nil, err
	}
	if apihttp.HasBearerProtocol(r.Header) {
		return nil, apihttp.Errorf(http.StatusBadRequest, "a WebSocket subprotocol carries a bearer token: the agent accepts none")
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
