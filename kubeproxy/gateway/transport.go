package gateway

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/apihttp"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/tunnel"
)

const (
	// dialTimeout is how long an agent may take to accept a connection, whatever the timeout of the request.
	dialTimeout = 20 * time.Second
	// idleTimeout is how long an idle connection to an agent is kept. The agent keeps it longer: it must not close one while a
	// request is on its way.
	idleTimeout = 90 * time.Second
	// maxIdle and maxIdlePerAgent bound the idle connections. A user who opens an Application needs a dozen.
	maxIdle         = 1024
	maxIdlePerAgent = 64
)

// transport sends requests to agents.
type transport struct {
	pooled atomic.Pointer[http.Transport]
	// upgrades never uses a connection again: http.Transport repeats a GET when a used connection breaks, but a GET that asks
	// for an upgrade may be an exec, which must not run twice.
	upgrades *http.Transport
}

// newTransport returns a transport, which the caller closes.
func newTransport(dial Dial, metrics *metrics) *transport {
	pooled := &http.Transport{
		DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
			return dialAgent(ctx, dial, metrics, strings.TrimSuffix(address, ":80"))
		},
		DisableCompression:     true, // the caller decides what it accepts
		MaxIdleConns:           maxIdle,
		MaxIdleConnsPerHost:    maxIdlePerAgent,
		IdleConnTimeout:        idleTimeout,
		MaxResponseHeaderBytes: apihttp.MaxHeaderBytes,
		ExpectContinueTimeout:  time.Second,
	}
	upgrades := pooled.Clone()
	upgrades.DisableKeepAlives = true
	t := &transport{upgrades: upgrades}
	t.pooled.Store(pooled)
	return t
}

// dialAgent dials an agent.
func dialAgent(ctx context.Context, dial Dial, metrics *metrics, agent string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	conn, err := dial(ctx, agent)
	switch {
	case err == nil:
		metrics.addAgent(agent)
		return conn, nil
	case errors.Is(err, tunnel.ErrUnknownAgent):
		metrics.removeAgent(agent)
	}
	return nil, dialError{err}
}

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if forwardedOf(r.Context()).kind == kindUpgrade {
		return t.upgrades.RoundTrip(r)
	}
	pooled := t.pooled.Load()
	response, err := pooled.RoundTrip(r)
	if t.pooled.Load() != pooled { // a request has http.Transport keep idle connections again
		pooled.CloseIdleConnections()
	}
	return response, err
}

// leave closes the idle connections, and has those that are in use closed after that.
func (t *transport) leave() {
	left := t.pooled.Load()
	t.pooled.Store(left.Clone())
	left.CloseIdleConnections() // and those that become idle
}
