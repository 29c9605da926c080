// Package gateway is the HTTPS server that stands for the API servers of the spokes: it passes each request to the agent
// that is meant, and its answer back, both unchanged.
//
// Who asks and which agent is meant is for package callers to say, what the caller may do there for the agent.
package gateway

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/apihttp"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/kubeproxy/callers"
)

// Refusals are logged a few at a time, like those of TLS: a caller can cause thousands in a second.
const (
	refusalLogInterval = 5 * time.Second
	refusalLogBurst    = 20
)

// bufferSize is that of the buffers by which answers are copied. Every open watch has one. What is in it makes an HTTP/2
// frame that just fills a record of TLS, with its 9 bytes of header: any more would be a record, and a system call, of its own.
const bufferSize = 16<<10 - 9

// Dial opens a connection to an agent's HTTP server, a *tunnel.Conn but for tests. Its errors wrap those of package
// tunnel, or context.DeadlineExceeded when it took too long; any other means that the principal cannot be reached.
type Dial func(ctx context.Context, agent string) (net.Conn, error)

// Options configures a Gateway.
type Options struct {
	// Callers knows who asks and which agent is meant.
	Callers *callers.Callers
	Dial    Dial
	// Timeout is how long an agent may take to begin its answer, save for watches, logs and upgrades.
	Timeout time.Duration
	// Drain is how long open requests may take to end by themselves when the gateway ends.
	Drain time.Duration
	// Registerer takes the metrics.
	Registerer prometheus.Registerer
	Logger     *slog.Logger
}

// Gateway serves requests. Serve is the way to have it do so.
type Gateway struct {
	options   Options
	metrics   *metrics
	refusals  *rate.Limiter // of their log
	transport *transport
	proxy     *httputil.ReverseProxy
	open      sync.WaitGroup

	mu       sync.Mutex
	stopping bool // nothing more is served. Guarded by mu
}

// New returns a Gateway that has no connections.
func New(options Options) *Gateway {
	g := &Gateway{
		options: options, metrics: newMetrics(options.Registerer),
		refusals: rate.NewLimiter(rate.Every(refusalLogInterval), refusalLogBurst),
	}
	g.transport = newTransport(options.Dial, g.metrics)
	g.proxy = &httputil.ReverseProxy{
		Rewrite: rewrite, Transport: g.transport, ModifyResponse: answered, ErrorHandler: g.failed,
		// Answers without a length, such as watches, are flushed at once whatever is said here; the others are best written
		// in as few pieces as possible.
		FlushInterval: 0,
		BufferPool:    apihttp.NewBufferPool(bufferSize),
		ErrorLog:      slog.NewLogLogger(options.Logger.Handler(), slog.LevelDebug),
	}
	return g
}

// exchange is a request and its answer.
type exchange struct {
	call     callers.Call
	kind     kind
	verb     string
	patience *patience // nil when the answer may take as long as it likes
	duplex   bool      // the answer may begin before all of the request is read, over HTTP/1.1
	code     int       // of the answer; 0 while there is none
}

// exchangeKey finds the exchange in the contexts of its requests.
type exchangeKey struct{}

func exchangeOf(ctx context.Context) *exchange {
	x, ok := ctx.Value(exchangeKey{}).(*exchange)
	if !ok {
		return &exchange{} // nobody asks who is not within one
	}
	return x
}

// ServeHTTP implements http.Handler.
func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !g.enter() {
		apihttp.WriteError(w, errStopping)
		return
	}
	defer g.open.Done()
	peer, ctx, end, err := g.options.Callers.Bind(r)
	if err != nil {
		g.refuse(w, r, "", err)
		return
	}
	defer end()
	g.admit(w, r.WithContext(ctx), peer)
}

// admit passes a request on if it is one to be passed on.
func (g *Gateway) admit(w http.ResponseWriter, r *http.Request, peer identity.Peer) {
	call, err := g.options.Callers.Admit(r, peer)
	if err != nil {
		g.refuse(w, r, peer.Subject, err)
		return
	}
	x := &exchange{call: call, kind: kindOf(r, call.Path)}
	x.verb = verbOf(r, x.kind)
	g.pass(w, r.WithContext(context.WithValue(r.Context(), exchangeKey{}, x)), x)
}

// pass passes a request on, and counts it.
func (g *Gateway) pass(w http.ResponseWriter, r *http.Request, x *exchange) {
	began := time.Now()
	open := g.metrics.open.WithLabelValues(string(x.kind))
	open.Inc()
	whole := false
	defer func() {
		open.Dec()
		code := class(x.code)
		if !whole { // the proxy lets the server break the connection off, so that nobody takes a part for the whole
			code = "aborted"
		}
		g.metrics.requests.WithLabelValues(g.metrics.label(string(x.call.Agent)), x.verb, code).Inc()
		if x.kind == short {
			g.metrics.duration.WithLabelValues(x.verb).Observe(time.Since(began).Seconds())
		}
	}()
	if r.ContentLength != 0 {
		// An agent may answer before it has all of the body, and take the rest. Without this, an HTTP/1.1 server throws the
		// rest away.
		_ = http.NewResponseController(w).EnableFullDuplex() // HTTP/2 is so by itself
		x.duplex = r.ProtoMajor == 1
	}
	switch x.kind {
	case upgrade:
		conversation := &hijackable{ResponseWriter: w, ctx: r.Context()}
		defer conversation.done()
		w = conversation
	case short:
		ctx, cancel := context.WithCancelCause(r.Context())
		defer cancel(nil)
		x.patience = newPatience(g.options.Timeout, func() {
			cancel(apihttp.Errorf(http.StatusGatewayTimeout, "agent %q did not answer within %s: see whether its API server and its network are slow; "+
				"whether the request was carried out is not known", x.call.Agent, g.options.Timeout))
		})
		defer x.patience.stop()
		r = r.WithContext(ctx)
		if r.ContentLength != 0 {
			r.Body = patientBody{ReadCloser: r.Body, patience: x.patience}
		}
	}
	g.proxy.ServeHTTP(w, r)
	whole = true
}

// answered notes that an answer began.
func answered(response *http.Response) error {
	x := exchangeOf(response.Request.Context())
	if err := apihttp.RefuseRedirect(response); err != nil {
		return err
	}
	if x.duplex && response.Close {
		last(response.Header) // the agent does not take the rest
	}
	x.code = response.StatusCode
	if x.patience != nil {
		x.patience.stop()
	}
	return nil
}

// last has the server close the caller's connection after an answer. What it has not read of the request by then it would
// stumble over, and the caller's next request would be lost.
func last(header http.Header) { header.Set("Connection", "close") }

// failed answers a request to which no answer came.
func (g *Gateway) failed(w http.ResponseWriter, r *http.Request, err error) {
	x := exchangeOf(r.Context())
	why := explain(r.Context(), string(x.call.Agent), err)
	x.code = why.Code
	if why.Code != apihttp.StatusClientClosedRequest {
		g.tell(r, x.call.Caller, why)
	}
	if x.duplex || why.Code == http.StatusUnauthorized {
		last(w.Header())
	}
	apihttp.WriteError(w, why)
}

// refuse answers a request that is not passed on.
func (g *Gateway) refuse(w http.ResponseWriter, r *http.Request, caller string, err error) {
	why := new(apihttp.Error)
	if !errors.As(err, &why) {
		why = apihttp.Errorf(http.StatusInternalServerError, "%v", err)
	}
	g.metrics.requests.WithLabelValues("", verbOf(r, short), class(why.Code)).Inc()
	g.tell(r, caller, why)
	if why.Code == http.StatusUnauthorized {
		last(w.Header()) // a newer certificate needs a new connection
	}
	apihttp.WriteError(w, why)
}

// tell tells people that a request was refused.
func (g *Gateway) tell(r *http.Request, caller string, why *apihttp.Error) {
	if g.refusals.Allow() {
		g.options.Logger.Info("A request was refused", "code", why.Code, "caller", apihttp.Printable(caller), "address", r.RemoteAddr,
			"method", apihttp.Printable(r.Method), "target", apihttp.Printable(r.RequestURI), "reason", why.Error())
	}
}

// enter notes that a request begins, unless it is too late for one.
func (g *Gateway) enter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.stopping {
		return false
	}
	g.open.Add(1)
	return true
}

// leave waits until every request has ended, and lets no more in.
func (g *Gateway) leave() {
	g.mu.Lock()
	g.stopping = true
	g.mu.Unlock()
	g.open.Wait()
	g.transport.close()
}
