package tunnel

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	tunnelv1 "github.com/argocd-agent-mesh/argocd-agent-mesh/api/tunnel/v1"
)

// Dialer dials agents through a principal. It is safe for concurrent use.
type Dialer struct {
	client tunnelv1.RelayClient
	name   string
	domain string
	conns  sync.WaitGroup
}

// NewDialer returns a dialer that uses a connection to the principal. The name is its connections' local address. If a domain is given, the
// :authority of what is for an agent is <agent>.<domain>, by which an Envoy in front of several principals finds the right one.
func NewDialer(principal grpc.ClientConnInterface, name, domain string) *Dialer {
	return &Dialer{client: tunnelv1.NewRelayClient(principal), name: name, domain: domain}
}

// A dial that finds no principal is made again for redialTimeout, after firstRedial, twice that and so on. A principal that ends has others in
// its place by then. Where a sidecar carries the connection, gRPC does not see that its principal has ended: the sidecar says so, call by call.
const (
	redialTimeout = 3 * time.Second
	firstRedial   = 50 * time.Millisecond
)

// Dial opens a connection to a target of an agent, and returns when the agent has accepted it. The context is only for the
// dial. Errors wrap ErrUnknownAgent, ErrNotConnected or the context's.
func (d *Dialer) Dial(ctx context.Context, agent string, target Target) (net.Conn, error) {
	patience, end := context.WithTimeout(ctx, redialTimeout)
	defer end()
	for pause := firstRedial; ; pause *= 2 {
		c, err := d.dial(ctx, agent, target)
		if err == nil {
			return c, nil
		}
		if status.Code(err) != codes.Unavailable { // which says that no agent has accepted
			return nil, dialError(ctx, agent, err)
		}
		select {
		case <-time.After(pause):
		case <-patience.Done():
			return nil, dialError(ctx, agent, err)
		}
	}
}

func (d *Dialer) dial(ctx context.Context, agent string, target Target) (net.Conn, error) {
	streaming, cancel := context.WithCancel(context.WithoutCancel(ctx))
	giveUp := context.AfterFunc(ctx, cancel)
	options := callOptions()
	if d.domain != "" {
		options = append(options, grpc.CallAuthority(agent+"."+d.domain))
	}
	s, err := d.client.Dial(metadata.AppendToOutgoingContext(streaming, MetadataAgent, agent, MetadataTarget, string(target)), options...)
	if err == nil {
		err = waitAccepted(s)
	}
	if !giveUp() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		cancel()
		return nil, err
	}
	c := newConn(s, cancel, address(d.name), spokeAddress(agent, target))
	d.conns.Go(c.run)
	return c, nil
}

// waitAccepted waits until the agent has accepted the connection.
func waitAccepted(s stream) error {
	header, err := s.Header()
	if err != nil {
		return err
	}
	if len(header.Get(MetadataDial)) > 0 {
		return nil
	}
	// The agent has not accepted, and the call ends with the reason.
	var f frame
	if err := s.RecvMsg(&f); err != nil {
		return err
	}
	return errors.New("unexpected answer to a dial: is this a principal?")
}

// dialError returns the error of a Dial that failed.
func dialError(ctx context.Context, agent string, err error) error {
	text := status.Convert(err).Message()
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("agent %q: %w", agent, ctx.Err())
	case status.Code(err) == codes.NotFound:
		return fmt.Errorf("agent %q: %w", agent, ErrUnknownAgent)
	case status.Code(err) == codes.FailedPrecondition:
		return fmt.Errorf("agent %q: %w: %s", agent, ErrNotConnected, text)
	case status.Code(err) == codes.DeadlineExceeded:
		return fmt.Errorf("agent %q: %w: %s", agent, context.DeadlineExceeded, text)
	}
	return fmt.Errorf("agent %q: principal: %w", agent, err)
}

// Wait returns when all connections are closed. Nobody may dial any more then.
func (d *Dialer) Wait() { d.conns.Wait() }
