package apiproxy

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
	// maxHeader bounds the head of an answer, in bytes: kubeproxy takes no more.
	maxHeader = 1 << 20
)

// upstream is the API server. Each request has a connection of its own while it lasts, as the caller has one through the
// tunnel: nothing waits for anything else, and it costs half of what HTTP/2 does.
type upstream struct {
	base   *url.URL
	plain  http.RoundTripper // of GETs and HEADs, which are most; nil where that is pooled's
	pooled http.RoundTripper // of other requests
	// An upgrade turns its connection into something else. What is idle is only used again for requests that are none.
	fresh http.RoundTripper
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
	if u.pooled, err = rest.TransportFor(config); err != nil {
		return nil, fmt.Errorf("the API server's credentials: %w", err)
	}
	if config.Dial == nil { // transports are shared by configurations that are equal
		config.Dial = (&net.Dialer{Timeout: dialTimeout, KeepAlive: dialTimeout}).DialContext
	}
	if u.fresh, err = rest.TransportFor(config); err != nil {
		return nil, fmt.Errorf("the API server's credentials: %w", err)
	}
	if !simple(config, base) {
		return u, nil
	}
	if u.plain, err = rest.HTTPWrappersForConfig(config, roundtrip.New(roundtrip.Options{
		Dial: func(ctx context.Context, _ string) (net.Conn, error) { return connect(ctx, config, base) }, MaxHeader: maxHeader,
		MaxIdle: maxIdle, MaxIdlePerHost: maxIdle, IdleTimeout: idleTimeout,
	})); err != nil {
		return nil, fmt.Errorf("the API server's credentials: %w", err)
	}
	return u, nil
}

// simple says whether there is no more to a connection to the API server than TLS, as for an agent that runs in the cluster. A
// proxy would have to be asked, and client certificates that are replaced end client-go's own connections, and no others.
func simple(config *rest.Config, base *url.URL) bool {
	if config.CertFile != "" || config.ExecProvider != nil || config.AuthProvider != nil || config.Transport != nil {
		return false
	}
	proxy := config.Proxy
	if proxy == nil {
		proxy = http.ProxyFromEnvironment
	}
	behind, err := proxy(&http.Request{URL: base})
	return behind == nil && err == nil
}

// connect opens a connection to the API server. The file with its authorities is read each time: it is replaced before what is
// in it expires. client-go's own connections follow it within minutes.
func connect(ctx context.Context, config *rest.Config, base *url.URL) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	port := base.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[base.Scheme]
	}
	conn, err := config.Dial(ctx, "tcp", net.JoinHostPort(base.Hostname(), port))
	if err != nil || base.Scheme == "http" {
		return conn, err
	}
	settings, err := rest.TLSConfigFor(config) // not nil, since it has NextProtos
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
		utilnet.CloseIdleConnectionsFor(u.fresh)
		return u.fresh.RoundTrip(r)
	case u.plain != nil && roundtrip.Supports(r):
		return u.plain.RoundTrip(r)
	default:
		return u.pooled.RoundTrip(r)
	}
}

func (u *upstream) close() {
	utilnet.CloseIdleConnectionsFor(u.plain)
	utilnet.CloseIdleConnectionsFor(u.pooled)
	utilnet.CloseIdleConnectionsFor(u.fresh)
}

// rewrite makes a request the agent's own.
func (u *upstream) rewrite(r *httputil.ProxyRequest) {
	out := r.Out
	out.URL.Scheme, out.URL.Host = u.base.Scheme, u.base.Host
	out.URL.Path = strings.TrimSuffix(u.base.Path, "/") + r.In.URL.Path
	out.Host = ""
	dropHeader(out.Header)
}
