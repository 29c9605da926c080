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
	// Decide says whether a request is allowed. Its error is an *apihttp.Error if the request is invalid. Any other error
	// means that the policy could not decide.
	Decide(ctx context.Context, q *policy.Request) (policy.Decision, error)
	// Changed returns a channel that is closed when decisions may be others than before.
	Changed() <-chan struct{}
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
	buffered chan struct{} // a token for each request body in memory
	requests *prometheus.CounterVec
}

// New returns a handler, without connections.
func New(o Options) (*Handler, error) {
	up, err := newUpstream(o.Config)
	if err != nil {
		return nil, fmt.Errorf("API server proxy: %w", err)
	}
	h := &Handler{
		options: o, upstream: up, buffered: make(chan struct{}, maxBufferedBodies),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "argocd_agent_resource_proxy_requests_total",
			Help: "Requests from the hub to this cluster's API server, by verb, outcome (allowed, denied, failed) and class of the status code.",
		}, []string{"verb", "outcome", "code"}),
	}
	o.Registerer.MustRegister(h.requests)
	h.proxy = &httputil.ReverseProxy{
		Rewrite: up.rewrite, Transport: up, ModifyResponse: apihttp.RefuseRedirect, ErrorHandler: h.onError,
		BufferPool: apihttp.NewBufferPool(bufferSize), ErrorLog: slog.NewLogLogger(o.Logger.Handler(), slog.LevelDebug),
	}
	return h, nil
}

// Close closes the idle connections to the API server.
func (h *Handler) Close() { h.upstream.close() }

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a := &auditRecord{handler: h, writer: w, started: time.Now(), header: r.Header, outcome: failed}
	// Deferred, because the proxy panics to abort a response that it cannot finish.
	defer a.log(r.Context())
	q, err := h.parse(r)
	if err != nil {
		a.outcome = denied
		refuse(a, decisionError(err))
		return
	}
	a.request, a.query = q, r.URL
	body := &bufferedBody{handler: h, request: r, writer: w}
	defer body.release()
	q.Body = body.readAll
	changed := h.options.Policy.Changed()
	a.decision, err = h.options.Policy.Decide(r.Context(), q)
	switch {
	case err != nil:
		a.err = err
		refuse(a, decisionError(err))
		return
	case !a.decision.Allowed:
		a.outcome = denied
		refuse(a, a.decision.Forbidden(q))
		return
	}
	a.ctx = r.Context()
	if goesOn(q) {
		var end func() *apihttp.Error
		a.ctx, end = h.whileAllowed(r.Context(), w, a, changed)
		defer func() {
			if why := end(); why != nil {
				a.outcome, a.err, a.decision.Reason = denied, nil, why.Message
			}
		}()
	}
	h.proxy.ServeHTTP(a, r.WithContext(context.WithValue(a.ctx, auditRecordKey{}, a))) //nolint:contextcheck // it is the request's, or one that ends with it
	if a.err == nil {
		a.outcome = allowed
		a.abortIfDenied()
	}
}

// parse returns what a request asks for, or an *apihttp.Error.
func (h *Handler) parse(r *http.Request) (*policy.Request, error) {
	if err := apihttp.CheckHeaders(r.Header); err != nil {
		return nil, err
	}
	if err := apihttp.CheckUpgrade(r); err != nil {
		return nil, err
	}
	if apihttp.HasBearerProtocol(r.Header) {
		return nil, apihttp.Errorf(http.StatusBadRequest, "a WebSocket subprotocol carries a bearer token: the agent accepts none")
	}
	return policy.Parse(r)
}

// auditRecordKey is the context key of an *auditRecord.
type auditRecordKey struct{}

// onError answers a request to which the API server did not respond.
func (h *Handler) onError(w http.ResponseWriter, r *http.Request, err error) {
	if a, ok := r.Context().Value(auditRecordKey{}).(*auditRecord); ok {
		a.err = err
	}
	if why := denial(r.Context()); why != nil {
		refuse(w, why)
		return
	}
	refuse(w, upstreamError(err))
}
