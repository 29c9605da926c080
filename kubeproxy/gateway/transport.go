package gateway

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/apihttp"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/tunnel"
)

const (
	// dialTimeout is how long it may take until an agent takes a connection, however long the request may wait.
	dialTimeout = 20 * time.Second
	// idleTimeout is how long an unused connection to an agent is kept. The agent keeps it for longer: it must not end one
	// under a request that is on its way.
	idleTimeout = 90 * time.Second
	// maxIdle and maxIdlePerAgent bound the unused connections. A person who opens an application needs a dozen.
	maxIdle         = 1024
	maxIdlePerAgent = 64
)

// transport sends requests to agents.
type transport struct {
	pooled *http.Transport
	// upgrades never uses a connection again: http.Transport repeats a GET when a used connection breaks, but a GET that asks
	// for an upgrade may be an exec, which must not run twice.
	upgrades *http.Transport
}

// newTransport returns a transport. Whoever has it closes it.
func newTransport(dial Dial, metrics *metrics) *transport {
	pooled := &http.Transport{
		DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
			return connect(ctx, dial, metrics, strings.TrimSuffix(address, ":80"))
		},
		DisableCompression:     true, // what is asked for is the caller's to say
		MaxIdleConns:           maxIdle,
		MaxIdleConnsPerHost:    maxIdlePerAgent,
		IdleConnTimeout:        idleTimeout,
		MaxResponseHeaderBytes: apihttp.MaxHeaderBytes,
		ExpectContinueTimeout:  time.Second,
	}
	upgrades := pooled.Clone()
	upgrades.DisableKeepAlives = true
	return &transport{pooled: pooled, upgrades: upgrades}
}

// connect dials an agent.
func connect(ctx context.Context, dial Dial, metrics *metrics, agent string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	conn, err := dial(ctx, agent)
	switch {
	case err == nil:
		metrics.met(agent)
		return conn, nil
	case errors.Is(err, tunnel.ErrUnknown):
		metrics.forget(agent)
	}
	return nil, dialError{err}
}

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if exchangeOf(r.Context()).kind == upgrade {
		return t.upgrades.RoundTrip(r)
	}
	return t.pooled.RoundTrip(r)
}

// close gives up the connections that are not in use.
func (t *transport) close() {
	t.pooled.CloseIdleConnections()
	t.upgrades.CloseIdleConnections()
}
