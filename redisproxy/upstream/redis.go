// Package upstream is the hub's Redis: connections to it that a client has for itself, and ones that many clients share.
package upstream

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"

	"github.com/tidwall/redcon"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/redis/resp"
)

// Options say where the hub's Redis is.
type Options struct {
	// Address is host:port.
	Address string
	// TLS returns the configuration for one connection. It is nil when there is to be no TLS.
	TLS func() (*tls.Config, error)
	// Timeout is for a connection to be made.
	Timeout time.Duration
}

// Identity is all that a connection to Redis must have in common with another one to be worth the same for commands that
// leave nothing behind on it.
type Identity struct {
	User, Password string
	Database       int
	// Protocol is 3, or anything else for 2.
	Protocol int
}

// Open connects to Redis.
func (o Options) Open(ctx context.Context) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	var dialer interface {
		DialContext(ctx context.Context, network, address string) (net.Conn, error)
	} = new(net.Dialer)
	if o.TLS != nil {
		config, err := o.TLS()
		if err != nil {
			return nil, fmt.Errorf("TLS to the hub's Redis: %w", err)
		}
		dialer = &tls.Dialer{Config: config}
	}
	conn, err := dialer.DialContext(ctx, "tcp", o.Address)
	if err != nil {
		return nil, fmt.Errorf("connect to the hub's Redis: %w", err)
	}
	return conn, nil
}

// openAs connects to Redis and takes on an identity.
func (o Options) openAs(ctx context.Context, id Identity) (net.Conn, error) {
	conn, err := o.Open(ctx)
	if err != nil {
		return nil, err
	}
	if err := o.introduce(conn, id); err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("introduce a client to the hub's Redis: %w", err)
	}
	return conn, nil
}

func (o Options) introduce(conn net.Conn, id Identity) error {
	greeting, answers := id.greeting()
	if answers == 0 {
		return nil
	}
	if err := conn.SetDeadline(time.Now().Add(o.Timeout)); err != nil {
		return err
	}
	if _, err := conn.Write(greeting); err != nil {
		return err
	}
	var replies resp.Replies
	for one := make([]byte, 1); answers > 0; {
		if _, err := io.ReadFull(conn, one); err != nil { // no byte more than the answers are: few clients, few bytes
			return err
		}
		_, done, err := replies.Next(one)
		if err != nil {
			return err
		}
		if done && replies.Kind() == '-' {
			return errors.New("it was refused")
		}
		if done {
			answers--
		}
	}
	return conn.SetDeadline(time.Time{})
}

// greeting returns the commands that give a connection the identity, and how many they are.
func (id Identity) greeting() (commands []byte, count int) {
	say := func(words ...string) {
		count++
		commands = redcon.AppendArray(commands, len(words))
		for _, word := range words {
			commands = redcon.AppendBulkString(commands, word)
		}
	}
	if id.User != "" { // which may need no password
		say("AUTH", id.User, id.Password)
	} else if id.Password != "" {
		say("AUTH", id.Password)
	}
	if id.Protocol == 3 {
		say("HELLO", "3")
	}
	if id.Database != 0 {
		say("SELECT", strconv.Itoa(id.Database))
	}
	return commands, count
}
