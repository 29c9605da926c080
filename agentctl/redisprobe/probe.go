// Package redisprobe looks whether a Redis can be used as it is configured: reached, by TLS or in plain text, and with the password. What is
// wrong it tells by errors that a caller can name the remedy for.
package redisprobe

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/redis/resp"
)

// Why a Redis cannot be used. Other errors are of a connection that ended.
var (
	ErrUnreachable = errors.New("no connection")
	// ErrPlain is for a Redis that speaks no TLS, where TLS is configured, and ErrTLS for the reverse.
	ErrPlain = errors.New("it answers in plain text, and TLS is configured")
	ErrTLS   = errors.New("it speaks TLS, and plain text is configured")
	// ErrUntrusted is for a certificate of another CA or out of its time, and ErrName for one of other names.
	ErrUntrusted = errors.New("its certificate is not trusted")
	ErrName      = errors.New("its certificate is for other names")
	// ErrPassword is for a password that is refused, and ErrNoPassword for one that is missing.
	ErrPassword   = errors.New("it refuses the password")
	ErrNoPassword = errors.New("it asks for a password, and there is none")
	// ErrNoRedis is for what answers, and is no Redis.
	ErrNoRedis = errors.New("what answers there is no Redis")
	// ErrReply is an error that Redis replied.
	ErrReply = errors.New("it replied")
)

const (
	// maxReply bounds what Redis may reply.
	maxReply = 8 << 20
	// maxText is how much of an error is shown.
	maxText = 1000
	// silence is how long a server may say nothing to a TLS handshake before it is asked whether it speaks plain text. It decides nothing else.
	silence = time.Second
)

// Target is a Redis, and how it is configured to be used.
type Target struct {
	// Address is host:port as it is reached from here.
	Address string
	// TLS is how it is verified; nil for plain text. The name of its server is one of Names.
	TLS *tls.Config
	// Names are those by which its clients know it. Its certificate has to have one of them.
	Names []string
	// Username may be empty, and so may Password.
	Username, Password string
	// Timeout is for each step.
	Timeout time.Duration
}

// Client is a connection that Redis has accepted.
type Client struct {
	conn    net.Conn
	replies *bufio.Reader
	timeout time.Duration
}

// Open connects, and authenticates. The password is sent to nobody but a Redis, which has to answer first, and never in plain text to one that
// speaks TLS.
func Open(ctx context.Context, t Target) (*Client, error) {
	conn, err := t.connect(ctx)
	if err != nil {
		return nil, err
	}
	c := t.client(conn)
	err = c.greet(ctx, t)
	if err == nil {
		return c, nil
	}
	_ = conn.Close() // what is wrong is known already
	if t.TLS == nil && !errors.Is(err, ErrReply) && !errors.Is(err, ErrPassword) && !errors.Is(err, ErrNoPassword) && t.speaksTLS(ctx) {
		err = ErrTLS
	}
	return nil, err
}

func (t Target) client(conn net.Conn) *Client {
	return &Client{conn: conn, replies: bufio.NewReader(conn), timeout: t.Timeout}
}

// dial makes a connection, without TLS.
func (t Target) dial(ctx context.Context) (net.Conn, error) {
	conn, err := (&net.Dialer{Timeout: t.Timeout}).DialContext(ctx, "tcp", t.Address)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	return conn, nil
}

// connect makes a connection that is as configured.
func (t Target) connect(ctx context.Context) (net.Conn, error) {
	if t.TLS == nil {
		return t.dial(ctx)
	}
	var failure error
	for _, name := range t.Names {
		config := t.TLS.Clone()
		config.ServerName = name
		conn, err := t.handshake(ctx, config)
		if err == nil || errors.Is(err, ErrUnreachable) {
			return conn, err
		}
		if failure = err; !errors.As(err, new(x509.HostnameError)) {
			break
		}
	}
	switch {
	case errors.As(failure, new(x509.HostnameError)):
		return nil, fmt.Errorf("%w: %w", ErrName, failure)
	case errors.As(failure, new(*tls.CertificateVerificationError)):
		return nil, fmt.Errorf("%w: %w", ErrUntrusted, failure)
	case errors.Is(failure, ErrPlain), t.speaksPlain(ctx):
		return nil, ErrPlain
	default:
		return nil, fmt.Errorf("TLS handshake: %w", failure)
	}
}

// handshake makes a connection by TLS. A Redis that speaks none says nothing to a handshake: it waits for the end of a line.
func (t Target) handshake(ctx context.Context, config *tls.Config) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, t.Timeout)
	defer cancel()
	var asking sync.WaitGroup
	defer asking.Wait()
	ctx, give := context.WithCancelCause(ctx)
	defer give(nil)
	asking.Go(func() {
		select {
		case <-ctx.Done():
		case <-time.After(silence):
			if t.speaksPlain(ctx) {
				give(ErrPlain)
			}
		}
	})
	conn, err := t.secure(ctx, config)
	if err != nil && errors.Is(context.Cause(ctx), ErrPlain) {
		err = ErrPlain
	}
	return conn, err
}

// secure makes a connection by TLS.
func (t Target) secure(ctx context.Context, config *tls.Config) (net.Conn, error) {
	raw, err := t.dial(ctx)
	if err != nil {
		return nil, err
	}
	secured := tls.Client(raw, config)
	if err := secured.HandshakeContext(ctx); err != nil {
		_ = raw.Close() // what is wrong is known already
		return nil, err
	}
	return secured, nil
}

// speaksTLS reports whether the server speaks TLS, with whatever certificate. Nothing is sent to it.
func (t Target) speaksTLS(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, t.Timeout)
	defer cancel()
	conn, err := t.secure(ctx, &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: true}) //nolint:gosec // it is told nothing
	if err == nil {
		_ = conn.Close()
	}
	return err == nil
}

// speaksPlain reports whether the server is a Redis in plain text.
func (t Target) speaksPlain(ctx context.Context) bool {
	conn, err := t.dial(ctx)
	if err != nil {
		return false
	}
	defer func() { _ = conn.Close() }() // it was only asked
	_, err = t.client(conn).Do(ctx, "PING")
	return err == nil || errors.Is(err, ErrReply)
}

// greet has Redis say that it is one, and authenticates.
func (c *Client) greet(ctx context.Context, t Target) error {
	_, err := c.Do(ctx, "PING")
	asks := hasCode(err, "NOAUTH")
	switch {
	case err != nil && !asks:
		return err
	case asks && t.Password == "":
		return ErrNoPassword
	case t.Password == "":
		return nil
	}
	words := []string{"AUTH", t.Password}
	if t.Username != "" {
		words = []string{"AUTH", t.Username, t.Password}
	}
	if _, err = c.Do(ctx, words...); errors.Is(err, ErrReply) {
		return fmt.Errorf("%w: %w", ErrPassword, err)
	}
	return err
}

// replyError is an error that Redis replied.
type replyError string

// Error returns what Redis replied, or the beginning of it. Who answers may be anybody: it is not fit for a terminal as it is.
func (r replyError) Error() string { return ErrReply.Error() + " " + string(r[:min(len(r), maxText)]) }

// Unwrap returns ErrReply.
func (replyError) Unwrap() error { return ErrReply }

// hasCode reports whether an error is one that Redis replied, with that first word.
func hasCode(err error, code string) bool {
	var reply replyError
	return errors.As(err, &reply) && len(reply) >= len(code) && string(reply[:len(code)]) == code
}

// Do sends a command, and returns what Redis replied, nil if it was nothing. An error that it replied wraps ErrReply.
func (c *Client) Do(ctx context.Context, words ...string) ([]byte, error) {
	if err := c.conn.SetDeadline(time.Now().Add(c.timeout)); err != nil {
		return nil, err
	}
	defer context.AfterFunc(ctx, func() { _ = c.conn.SetDeadline(time.Unix(1, 0)) })()
	if _, err := c.conn.Write(resp.AppendCommand(nil, words...)); err != nil {
		return nil, fmt.Errorf("the connection ended: %w", err)
	}
	reply, err := resp.ReadReply(c.replies, maxReply, nil)
	switch {
	case errors.Is(err, resp.ErrReply):
		return nil, ErrNoRedis
	case err != nil:
		return nil, fmt.Errorf("the connection ended: %w", err)
	case resp.Null(reply):
		return nil, nil
	case reply[0] == '-':
		return nil, replyError(bytes.TrimSpace(reply[1:]))
	}
	text, ok := resp.Text(reply)
	if !ok {
		return nil, ErrNoRedis
	}
	return text, nil
}

// Close ends the connection.
func (c *Client) Close() { _ = c.conn.Close() } // it only read
