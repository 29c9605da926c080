package apiproxy

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/apihttp"
)

// dialTimeout is how long it may take to connect to the API server, and how often an idle connection is probed: client-go's
// own values.
const dialTimeout = 30 * time.Second

// upstream is the API server. Each request has a connection of its own while it lasts, as the caller has one through the
// tunnel: nothing waits for anything else, and it costs half of what HTTP/2 does.
//
// The transports are client-go's: they follow token, certificate and CA files, and use proxies, as every client of a cluster
// does.
type upstream struct {
	base   *url.URL
	pooled http.RoundTripper
	// upgrades never uses a connection again: http.Transport repeats a GET when a used connection breaks, but a GET that asks
	// for an upgrade may be an exec, which must not run twice.
	upgrades http.RoundTripper
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
	if u.upgrades, err = rest.TransportFor(config); err != nil {
		return nil, fmt.Errorf("the API server's credentials: %w", err)
	}
	return u, disableKeepAlives(u.upgrades)
}

// disableKeepAlives has a transport of client-go's, which nobody uses yet, use no connection again. There is no setting for it.
func disableKeepAlives(transport http.RoundTripper) error {
	for {
		switch t := transport.(type) {
		case *http.Transport:
			t.DisableKeepAlives = true // also of those that replace it when the CA changes, which are its clones
			return nil
		case utilnet.RoundTripperWrapper:
			transport = t.WrappedRoundTripper()
		default:
			return fmt.Errorf("connections to the API server: cannot disable keep-alives of a %T", transport)
		}
	}
}

// RoundTrip implements http.RoundTripper.
func (u *upstream) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Header.Get("Upgrade") == "" {
		return u.pooled.RoundTrip(r)
	}
	return u.upgrades.RoundTrip(r)
}

func (u *upstream) close() {
	utilnet.CloseIdleConnectionsFor(u.pooled)
	utilnet.CloseIdleConnectionsFor(u.upgrades) // one that was dialled for a request that did not wait for it
}

// rewrite makes a request the agent's own.
func (u *upstream) rewrite(r *httputil.ProxyRequest) {
	out := r.Out
	out.URL.Scheme, out.URL.Host = u.base.Scheme, u.base.Host
	out.URL.Path = strings.TrimSuffix(u.base.Path, "/") + r.In.URL.Path
	out.Host = ""
	apihttp.DropCredentials(out.Header)
	if a, ok := out.Context().Value(auditRecordKey{}).(*auditRecord); !ok || !a.decision.Impersonates {
		apihttp.DropImpersonation(out.Header)
	}
}
