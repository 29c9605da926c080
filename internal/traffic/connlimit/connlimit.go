// Package connlimit bounds how many connections a server keeps, in all and of each client certificate. Streams and requests are
// bounded elsewhere; connections without any cost file descriptors and memory all the same.
package connlimit

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Options configure a Limit.
type Options struct {
	// Total is how many connections there may be, handshakes under way included; Setting names what changes that.
	Total   int
	Setting string
	// PerCertificate is how many of these may come with one client certificate.
	PerCertificate int
	Logger         *slog.Logger
}

// Limit bounds the connections of one server. It is safe for concurrent use.
type Limit struct {
	options Options

	logTotal, logCertificate *rate.Limiter // of what is logged

	mu            sync.Mutex
	total         int                       // guarded by mu
	byCertificate map[[sha256.Size]byte]int // guarded by mu
}

// logInterval is how often it is logged that a limit is reached.
const logInterval = time.Minute

// New returns a limit.
func New(o Options) *Limit {
	return &Limit{
		options: o, byCertificate: make(map[[sha256.Size]byte]int),
		logTotal: rate.NewLimiter(rate.Every(logInterval), 1), logCertificate: rate.NewLimiter(rate.Every(logInterval), 1),
	}
}

// Listen returns a listener that closes connections beyond the total at once. Those that it accepts are *Conn.
func (l *Limit) Listen(listener net.Listener) net.Listener { return limited{listener, l} }

type limited struct {
	net.Listener
	limit *Limit
}

// Accept implements [net.Listener].
func (l limited) Accept() (net.Conn, error) {
	for {
		raw, err := l.Listener.Accept()
		if err != nil {
			return nil, err //nolint:wrapcheck // callers tell it apart
		}
		if conn := l.limit.take(raw); conn != nil {
			return conn, nil
		}
		_ = raw.Close()
	}
}

// take counts a connection. It returns nil if there are too many.
func (l *Limit) take(raw net.Conn) *Conn {
	l.mu.Lock()
	full := l.total >= l.options.Total
	if !full {
		l.total++
	}
	l.mu.Unlock()
	if full {
		if l.logTotal.Allow() {
			l.options.Logger.Warn("Refused connection: there are as many as may be", "address", raw.RemoteAddr().String(),
				"limit", l.options.Total, "setting", l.options.Setting)
		}
		return nil
	}
	return &Conn{Conn: raw, limit: l}
}

// Conn is a connection that is counted until it is closed.
type Conn struct {
	net.Conn

	limit  *Limit
	mu     sync.Mutex
	closed bool               // guarded by mu
	key    *[sha256.Size]byte // of the certificate that it counts for; nil before the handshake. Guarded by mu
}

// Admit counts a connection for the certificate that its client has proven to have. Its error says that there are too many.
func (c *Conn) Admit(certificate *x509.Certificate) error {
	key := sha256.Sum256(certificate.Raw)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.key != nil {
		return nil
	}
	l := c.limit
	l.mu.Lock()
	full := l.byCertificate[key] >= l.options.PerCertificate
	if !full {
		l.byCertificate[key]++
		c.key = &key
	}
	l.mu.Unlock()
	if full {
		if l.logCertificate.Allow() {
			l.options.Logger.Warn("Refused connection: its certificate has as many as it may", "address", c.RemoteAddr().String(),
				"limit", l.options.PerCertificate, "certificate", certificate.Subject.String())
		}
		return fmt.Errorf("there are %d connections with this certificate, which is the limit: close some", l.options.PerCertificate)
	}
	return nil
}

// Close implements [net.Conn].
func (c *Conn) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.closed = true
		c.limit.release(c.key)
	}
	return c.Conn.Close() //nolint:wrapcheck // it is the connection's
}

func (l *Limit) release(key *[sha256.Size]byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.total--
	if key == nil {
		return
	}
	if l.byCertificate[*key]--; l.byCertificate[*key] == 0 {
		delete(l.byCertificate, *key)
	}
}

// Config returns a server's TLS configuration that admits each client's certificate in the handshake. Its server's listener must be
// one of Listen's. The configuration must verify client certificates.
func Config(config *tls.Config) *tls.Config {
	outer := config.Clone()
	outer.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		chosen := config
		if config.GetConfigForClient != nil {
			found, err := config.GetConfigForClient(hello)
			if err != nil {
				return nil, err
			}
			if found != nil {
				chosen = found
			}
		}
		conn, ok := hello.Conn.(*Conn)
		if !ok {
			return chosen, nil
		}
		chosen = chosen.Clone()
		chosen.GetConfigForClient = nil
		verify := chosen.VerifyConnection
		chosen.VerifyConnection = func(state tls.ConnectionState) error {
			if verify != nil {
				if err := verify(state); err != nil {
					return err
				}
			}
			if len(state.PeerCertificates) == 0 {
				return nil
			}
			return conn.Admit(state.PeerCertificates[0])
		}
		return chosen, nil
	}
	return outer
}
