// Package connlimit bounds how many connections a server keeps: those whose client has authenticated, in all and of each client
// certificate, and apart from them those that are still in their handshake. Streams and requests are bounded elsewhere; connections
// without any cost file descriptors and memory all the same.
//
// Anybody can begin a handshake. So who has authenticated keeps its place whatever others do, and when there are too many handshakes
// in progress, the oldest of the address that has most of them makes room. How long a handshake may take is for the server to say.
package connlimit

import (
	"crypto/sha256"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
)

// Options configure a Limit.
type Options struct {
	// Total is how many connections there may be whose client has authenticated; Setting names what changes that. There may be a quarter
	// as many handshakes in progress besides.
	Total   int
	Setting string
	// PerCertificate is how many of these may come with one client certificate.
	PerCertificate int
	Logger         *slog.Logger
}

// Limit bounds the connections of one server. It is safe for concurrent use.
type Limit struct {
	options    Options
	handshakes int // how many may be in progress

	logTotal, logCertificate, logHandshakes rate.Sometimes

	mu            sync.Mutex
	admitted      int                       // guarded by mu
	byCertificate map[[sha256.Size]byte]int // of those. Guarded by mu
	waiting       Queue[*Conn]              // handshakes in progress. Guarded by mu
}

// logInterval is how often it is logged that a limit is reached.
const logInterval = time.Minute

// New returns a limit.
func New(o Options) *Limit {
	return &Limit{
		options: o, handshakes: max(1, o.Total/4), byCertificate: make(map[[sha256.Size]byte]int),
		logTotal: rate.Sometimes{Interval: logInterval}, logCertificate: rate.Sometimes{Interval: logInterval},
		logHandshakes: rate.Sometimes{Interval: logInterval},
	}
}

// Listen returns a listener whose connections are *Conn. The server calls Admit when it knows who the client is.
func (l *Limit) Listen(listener net.Listener) net.Listener { return limited{listener, l} }

type limited struct {
	net.Listener
	limit *Limit
}

// Accept implements [net.Listener].
func (l limited) Accept() (net.Conn, error) {
	raw, err := l.Listener.Accept()
	if err != nil {
		return nil, err //nolint:wrapcheck // callers tell it apart
	}
	return l.limit.wait(raw), nil
}

// wait counts a handshake that begins, and ends another one if there are too many.
func (l *Limit) wait(raw net.Conn) *Conn {
	c := &Conn{Conn: raw, limit: l}
	l.mu.Lock()
	var dropped *Conn
	if l.waiting.Len() >= l.handshakes {
		dropped, _ = l.waiting.Drop()
	}
	c.place = l.waiting.Join(c, raw.RemoteAddr())
	l.mu.Unlock()
	if dropped != nil {
		_ = dropped.Close()
		l.logHandshakes.Do(func() {
			l.options.Logger.Warn("Closed connection: limit of TLS handshakes in progress reached", "address", dropped.RemoteAddr().String(),
				"limit", l.handshakes, "setting", l.options.Setting)
		})
	}
	return c
}

// Conn is a connection that is counted until it is closed.
type Conn struct {
	net.Conn

	limit *Limit
	// All that follows is guarded by limit.mu; admitted is read without it.
	place    *Place[*Conn] // among those that wait
	admitted atomic.Bool
	closed   bool
	key      *[sha256.Size]byte // of the certificate that it counts for, if any
}

// Admit gives a connection one of the places for clients that have authenticated, and counts it for the certificate that its client has
// proven to have the key of; nil if whoever is before the server has authenticated it. Its error says that there are too many. It may be
// called again.
func (c *Conn) Admit(certificate *x509.Certificate) error {
	if c.admitted.Load() {
		return nil
	}
	l := c.limit
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.admitted.Load() {
		return nil
	}
	if c.closed || c.place.element == nil {
		return net.ErrClosed
	}
	if l.admitted >= l.options.Total {
		l.logTotal.Do(func() {
			l.options.Logger.Warn("Refused connection: limit of all connections reached", "address", c.RemoteAddr().String(),
				"limit", l.options.Total, "setting", l.options.Setting)
		})
		return fmt.Errorf("there are %d connections, which is the limit: close some, or raise %s", l.options.Total, l.options.Setting)
	}
	if certificate != nil {
		key := sha256.Sum256(certificate.Raw)
		if l.byCertificate[key] >= l.options.PerCertificate {
			l.logCertificate.Do(func() {
				l.options.Logger.Warn("Refused connection: limit of connections with one certificate reached", "address", c.RemoteAddr().String(),
					"limit", l.options.PerCertificate, "certificate", certificate.Subject.String())
			})
			return fmt.Errorf("there are %d connections with this certificate, which is the limit: close some", l.options.PerCertificate)
		}
		l.byCertificate[key]++
		c.key = &key
	}
	l.waiting.Leave(c.place)
	l.admitted++
	c.admitted.Store(true)
	return nil
}

// Close implements [net.Conn].
func (c *Conn) Close() error {
	c.limit.release(c)
	return c.Conn.Close() //nolint:wrapcheck // it is the connection's
}

func (l *Limit) release(c *Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.closed {
		return
	}
	c.closed = true
	l.waiting.Leave(c.place)
	if c.admitted.Load() {
		l.admitted--
	}
	if c.key == nil {
		return
	}
	if l.byCertificate[*c.key]--; l.byCertificate[*c.key] == 0 {
		delete(l.byCertificate, *c.key)
	}
}
