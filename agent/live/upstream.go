package live

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/roundtrip"
)

const (
	// dialTimeout is how long it may take to connect to the API server, and how often a connection that nothing is said on is
	// checked: the values that client-go has otherwise.
	dialTimeout = 30 * time.Second
	// idleTimeout is how long a connection is kept that nothing is said on, and maxIdle how many are: more than a person needs
	// who opens an application. The first is client-go's.
	idleTimeout = 90 * time.Second
	maxIdle     = 64
	// maxHeader bounds the head of an answer, in bytes. It is the API server's own limit of requests'.
	maxHeader = 1 << 20
)

// upstream is the API server. Each request has a connection of its own while it lasts, as the caller has one through the
// tunnel: nothing waits for anything else, and it costs half of what HTTP/2 does.
type upstream struct {
	base  *url.URL
	plain http.RoundTripper // of requests that have no body, which are most; nil where a proxy is in the way
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
	if u.plain, err = newPlain(config, base); err != nil {
		return nil, fmt.Errorf("the API server's credentials: %w", err)
	}
	return u, nil
}

// newPlain returns what makes round trips of requests that have no body, with a configuration's credentials. It returns nil
// where the API server is behind a proxy, or the configuration brings a way of its own.
func newPlain(config *rest.Config, base *url.URL) (http.RoundTripper, error) {
	proxy := config.Proxy
	if proxy == nil {
		proxy = http.ProxyFromEnvironment
	}
	behind, err := proxy(&http.Request{URL: base})
	if err != nil || behind != nil || config.Transport != nil {
		return nil, err
	}
	return rest.HTTPWrappersForConfig(config, roundtrip.New(roundtrip.Options{
		Dial: func(ctx context.Context, _ string) (net.Conn, error) { return connect(ctx, config, base) }, MaxHeader: maxHeader,
		MaxIdle: maxIdle, MaxIdlePerHost: maxIdle, IdleTimeout: idleTimeout,
	}))
}

// connect opens a connection to the API server. The files that the configuration names are read each time: they are replaced
// before what is in them expires.
func connect(ctx context.Context, config *rest.Config, base *url.URL) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	port := base.Port()
	if port == "" {
		port = base.Scheme
	}
	conn, err := config.Dial(ctx, "tcp", net.JoinHostPort(base.Hostname(), port))
	if err != nil || base.Scheme == "http" {
		return conn, err
	}
	settings, err := rest.TLSConfigFor(config)
	if err != nil {
		_ = conn.Close() // nothing was said
		return nil, err
	}
	if settings.ServerName == "" {
		settings.ServerName = base.Hostname()
	}
	secured := tls.Client(conn, settings)
	if err := secured.HandshakeContext(ctx); err != nil {
		_ = conn.Close() // nothing was said
		return nil, err
	}
	return secured, nil
}

// RoundTrip implements http.RoundTripper.
func (u *upstream) RoundTrip(r *http.Request) (*http.Response, error) {
	switch {
	case r.Header.Get("Upgrade") != "":
		// A GET is sent again when the connection breaks that it was sent on, if that was used before. One that is upgraded
		// may be an exec: it gets a new connection.
		utilnet.CloseIdleConnectionsFor(u.upgrades)
		return u.upgrades.RoundTrip(r)
	case u.plain != nil && roundtrip.Bodiless(r):
		return u.plain.RoundTrip(r)
	default:
		return u.requests.RoundTrip(r)
	}
}

func (u *upstream) close() {
	utilnet.CloseIdleConnectionsFor(u.plain)
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
