// Package upstream connects to the hub's Redis.
package upstream

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"time"
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

// Dial connects to Redis.
func (o Options) Dial(ctx context.Context) (net.Conn, error) {
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
