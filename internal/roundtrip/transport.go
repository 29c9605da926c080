// Package roundtrip is an http.RoundTripper for what a proxy is asked for most: GETs and HEADs without a body, over HTTP/1.1.
//
// net/http's Transport has two goroutines for each connection. It hands one a request, and is handed the answer by the other,
// because an answer may come while the request's body is still sent. Where there is no body, whoever asks can write the request
// and then read the answer. In a proxy, which does little else, that saves a tenth of the processor time.
package roundtrip

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"
)

// Options configure a Transport. All are required.
type Options struct {
	// Dial opens a connection to a host, as requests' URLs name it, whatever their scheme: a socket, with TLS or without, or a
	// Quieter. The Transport closes it. The errors are RoundTrip's.
	Dial func(ctx context.Context, host string) (net.Conn, error)
	// MaxHeader bounds the head of an answer, and all that is said ahead of it, in bytes.
	MaxHeader int64
	// MaxIdle and MaxIdlePerHost bound the connections that are kept for later, and IdleTimeout for how long they are.
	MaxIdle, MaxIdlePerHost int
	IdleTimeout             time.Duration
}

// Transport makes the round trips that it Supports. It does what an http.Transport does that neither compresses nor has a
// proxy, save that
//   - it does not watch the connections that it keeps. It looks at one before it uses it: if it was closed, or something was
//     said on it that nobody asked for, it uses another
//   - it takes the request as valid, and does not look at its scheme
//   - it waits for its own Dial, even if another connection becomes free meanwhile
//   - of a request's httptrace it calls Got1xxResponse only, and an answer's TLS is nil
//
// It is safe for concurrent use.
type Transport struct {
	options Options
	idle    *pool
}

// New returns a Transport that has no connections.
func New(options Options) *Transport {
	return &Transport{options: options, idle: newPool(options)}
}

// Supports says whether a Transport takes a request: a GET or HEAD, which may be sent twice, without a body, an upgrade or an
// Expect.
func Supports(r *http.Request) bool {
	return (r.Method == http.MethodGet || r.Method == http.MethodHead) &&
		(r.Body == nil || r.Body == http.NoBody) && len(r.Header["Upgrade"]) == 0 && len(r.Header["Expect"]) == 0
}

var errUnsupported = errors.New("roundtrip: the request is no GET or HEAD without a body")

// RoundTrip implements http.RoundTripper. The answer's body is to be read to its end or closed; either lets its connection go.
// Like http.Transport, it asks again when a connection that was used before turns out to be closed after all. When the request's context
// ends, its cause is the error, also of what is being read.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if !Supports(r) {
		if r.Body != nil {
			_ = r.Body.Close() // which is up to a RoundTripper in any case
		}
		return nil, errUnsupported
	}
	for {
		if r.Context().Err() != nil {
			return nil, context.Cause(r.Context())
		}
		c, err := t.connection(r)
		if err != nil {
			return nil, err
		}
		answer, err := t.ask(c, r)
		switch {
		case err == nil:
			return answer, nil
		case r.Context().Err() != nil:
			return nil, context.Cause(r.Context())
		case !c.used || c.heard:
			return nil, err
		}
	}
}

// CloseIdleConnections closes the connections that are kept for later, and those that would be until something is asked again.
func (t *Transport) CloseIdleConnections() { t.idle.close() }

// connection returns a connection to a request's host, one that was kept or a new one.
func (t *Transport) connection(r *http.Request) (*conn, error) {
	for c := t.idle.take(r.URL.Host); c != nil; c = t.idle.take(r.URL.Host) {
		if c.quiet() {
			return c, nil
		}
		_ = c.Close() // what it says now is no answer
	}
	dialled, err := t.options.Dial(r.Context(), r.URL.Host)
	if err != nil {
		return nil, err
	}
	return newConn(dialled, r.URL.Host), nil
}

// ask sends a request over a connection and returns the answer, whose body gives the connection back.
func (t *Transport) ask(c *conn, r *http.Request) (*http.Response, error) {
	// To close it wakes whoever reads or writes. Nobody waits for the goroutine that does: it does nothing else.
	stop := context.AfterFunc(r.Context(), func() { _ = c.Close() })
	answer, err := c.exchange(r, t.options.MaxHeader)
	if err != nil {
		stop()
		_ = c.Close() // it is of no use any more
		return nil, err
	}
	b := &body{from: answer.Body, ctx: r.Context(), release: func(whole bool) {
		if !stop() || !whole || answer.Close || r.Close {
			_ = c.Close() // what it might still say is no answer
			return
		}
		t.idle.put(c)
	}}
	if answer.Body == http.NoBody {
		b.end(true)
		return answer, nil
	}
	answer.Body = b
	return answer, nil
}
