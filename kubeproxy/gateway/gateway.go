// Package gateway is the HTTPS server that stands for the API servers of the spokes. It forwards each request to one agent,
// and the response back, both unchanged.
//
// Package callers decides who the caller is and which agent is meant. The agent decides what the caller may do there.
package gateway

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/logging"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/apihttp"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/kubeproxy/callers"
)

// bufferSize is the size of the buffers that copy responses. Every open watch has one. With its 9 bytes of header, an HTTP/2
// frame of this size exactly fills a TLS record. A larger one would take a second record, and a second system call.
const bufferSize = 16<<10 - 9

// Dial opens a connection to an agent's HTTP server: a *tunnel.Conn, except in tests. Its errors wrap those of package
// tunnel, or context.DeadlineExceeded for a timeout. Any other error means that the principal cannot be reached.
type Dial func(ctx context.Context, agent string) (net.Conn, error)

// Options configures a Gateway.
type Options struct {
	// Callers decides who the caller is and which agent is meant.
	Callers *callers.Callers
	Dial    Dial
	// Timeout is how long an agent may take to begin its response, except to watches, logs and upgrades.
	Timeout time.Duration
	// MaxResponse bounds an agent's answer in bytes, except to watches, logs and upgrades; 0 for no bound.
	MaxResponse int64
	// MaxMemory bounds the bytes of memory that such an answer takes once it is decoded; 0 for no bound.
	MaxMemory int64
	// HeaderTimeout is how long a caller may take for its handshake, and for the headers of a request. Zero means ten seconds.
	HeaderTimeout time.Duration
	// DrainTimeout is how long open requests may take to end by themselves at shutdown.
	DrainTimeout time.Duration
	// MetricsAgents is how many agents have series of their own in the metrics.
	MetricsAgents int
	// Registerer takes the metrics.
	Registerer prometheus.Registerer
	Logger     *slog.Logger
}

// Gateway forwards requests to agents. Run it with Serve.
type Gateway struct {
	options    Options
	metrics    *metrics
	refusalLog *slog.Logger // rate-limited: a caller can cause thousands a second
	transport  *transport
	proxy      *httputil.ReverseProxy
	open       sync.WaitGroup // requests

	mu       sync.Mutex
	stopping bool // no request is accepted any more. Guarded by mu
}

// New returns a Gateway without connections.
func New(options Options) *Gateway {
	if options.HeaderTimeout == 0 {
		options.HeaderTimeout = headerTimeout
	}
	g := &Gateway{
		options: options, metrics: newMetrics(options.Registerer, options.MetricsAgents),
		refusalLog: logging.Limited(options.Logger),
	}
	g.transport = newTransport(options.Dial, g.metrics)
	g.proxy = &httputil.ReverseProxy{
		Rewrite: rewrite, Transport: g.transport, ModifyResponse: g.onResponse, ErrorHandler: g.onError,
		// Responses without a length, such as watches, are flushed at once in any case. The others are best written in few pieces.
		FlushInterval: 0,
		BufferPool:    apihttp.NewBufferPool(bufferSize),
		ErrorLog:      slog.NewLogLogger(options.Logger.Handler(), slog.LevelDebug),
	}
	return g
}

// forwarded is a request that is forwarded to an agent, and its response.
type forwarded struct {
	call    callers.Call
	kind    requestKind
	verb    string
	timeout *responseTimeout // nil if there is none
	duplex  bool             // over HTTP/1.1, and the response may begin before the whole request is read
	code    int              // of the response; 0 while there is none
}

// forwardedKey is the context key of a *forwarded.
type forwardedKey struct{}

func forwardedOf(ctx context.Context) *forwarded {
	f, ok := ctx.Value(forwardedKey{}).(*forwarded)
	if !ok {
		return &forwarded{} // never happens: forward sets it
	}
	return f
}

// ServeHTTP implements http.Handler.
func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !g.beginRequest() {
		writeError(w, r, errShuttingDown)
		return
	}
	defer g.open.Done()
	peer, bound, end, err := g.options.Callers.Bind(r)
	if err != nil {
		g.refuse(w, r, "", err)
		return
	}
	defer end()
	if err := keep(r.Context(), peer); err != nil {
		closeConnection(w.Header())
		g.refuse(w, r, peer.Name(), err)
		return
	}
	g.authorize(w, bound, peer)
}

// authorize forwards a request if its caller may reach the agent that it means.
func (g *Gateway) authorize(w http.ResponseWriter, r *http.Request, peer identity.Peer) {
	call, err := g.options.Callers.Admit(r, peer)
	if err != nil {
		g.refuse(w, r, peer.Name(), err)
		return
	}
	f := &forwarded{call: call, kind: kindOf(r, call.Path)}
	f.verb = verbOf(r, f.kind)
	g.forward(w, r.WithContext(context.WithValue(r.Context(), forwardedKey{}, f)), f)
}

// forward forwards a request, and counts it.
func (g *Gateway) forward(w http.ResponseWriter, r *http.Request, f *forwarded) {
	began := time.Now()
	open := g.metrics.open.WithLabelValues(string(f.kind))
	open.Inc()
	complete := false
	defer func() {
		open.Dec()
		code := codeClass(f.code)
		if !complete { // the proxy panics, so that the server aborts the connection and nobody takes a part for the whole
			code = "aborted"
		}
		g.metrics.requests.WithLabelValues(g.metrics.agentLabel(string(f.call.Agent)), f.verb, code).Inc()
		if f.kind == kindRequest {
			g.metrics.duration.WithLabelValues(f.verb).Observe(time.Since(began).Seconds())
		}
	}()
	if r.ContentLength != 0 {
		// An agent may respond before it has read the whole body, and read the rest. Otherwise an HTTP/1.1 server would
		// discard the rest.
		_ = http.NewResponseController(w).EnableFullDuplex() // HTTP/2 always is
		f.duplex = r.ProtoMajor == 1
	}
	switch f.kind {
	case kindUpgrade:
		hijacker := &hijackWriter{ResponseWriter: w, ctx: r.Context()}
		defer hijacker.release()
		w = hijacker
	case kindRequest:
		ctx, cancel := context.WithCancelCause(r.Context())
		defer cancel(nil)
		f.timeout = newResponseTimeout(g.options.Timeout, func() {
			cancel(apihttp.Errorf(http.StatusGatewayTimeout, "agent %q did not answer within %s: see whether its API server and its network are slow; "+
				"whether the request was carried out is not known", f.call.Agent, g.options.Timeout))
		})
		defer f.timeout.stop()
		r = r.WithContext(ctx)
		if r.ContentLength != 0 {
			r.Body = pausingBody{ReadCloser: r.Body, timeout: f.timeout}
		}
	}
	g.proxy.ServeHTTP(w, r)
	complete = true
}

// onResponse is called when the response of an agent begins.
func (g *Gateway) onResponse(response *http.Response) error {
	f := forwardedOf(response.Request.Context())
	if err := apihttp.RefuseRedirect(response); err != nil {
		return err
	}
	if err := g.bound(response, f); err != nil {
		return err
	}
	if f.duplex && response.Close {
		closeConnection(response.Header) // the agent does not read the rest
	}
	f.code = response.StatusCode
	if f.timeout != nil {
		f.timeout.stop()
	}
	return nil
}

// closeConnection has the server close the caller's connection after the response. The server would otherwise take the unread
// rest of a request body for the next request.
func closeConnection(header http.Header) { header.Set("Connection", "close") }

// onError answers a request that got no response.
func (g *Gateway) onError(w http.ResponseWriter, r *http.Request, err error) {
	f := forwardedOf(r.Context())
	failure := responseError(r.Context(), string(f.call.Agent), err)
	f.code = failure.Code
	if failure.Code != apihttp.StatusClientClosedRequest {
		g.logRefusal(r, f.call.Caller, failure)
	}
	writeError(w, r, failure)
}

// refuse answers a request that is not forwarded.
func (g *Gateway) refuse(w http.ResponseWriter, r *http.Request, caller string, err error) {
	refusal := new(apihttp.Error)
	if !errors.As(err, &refusal) {
		refusal = apihttp.Errorf(http.StatusInternalServerError, "%v", err)
	}
	g.metrics.requests.WithLabelValues("", verbOf(r, kindRequest), codeClass(refusal.Code)).Inc()
	g.logRefusal(r, caller, refusal)
	writeError(w, r, refusal)
}

// logRefusal logs a refusal without any value of the query: the words of a command are in it, with the passwords among them.
func (g *Gateway) logRefusal(r *http.Request, caller string, why *apihttp.Error) {
	path, query, _ := strings.Cut(r.RequestURI, "?")
	if !strings.HasPrefix(path, "/") {
		path = "" // a URL, which may have a password
	}
	g.refusalLog.Info("Request refused", "code", why.Code, "caller", apihttp.Printable(caller), "address", r.RemoteAddr,
		"method", apihttp.Printable(r.Method), "path", apihttp.Printable(path), "parameters", parameterNames(query), "reason", why.Error())
}

// beginRequest adds an open request. It reports false at shutdown.
func (g *Gateway) beginRequest() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.stopping {
		return false
	}
	g.open.Add(1)
	return true
}

// close accepts no more requests, waits for the open ones, and closes the connections to agents.
func (g *Gateway) close() {
	g.mu.Lock()
	g.stopping = true
	g.mu.Unlock()
	g.open.Wait()
	g.Leave()
}

// Leave has each connection to an agent closed as soon as no request uses it. The next requests open others.
func (g *Gateway) Leave() { g.transport.leave() }
