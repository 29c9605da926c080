package relay

import (
	"context"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	peerv1 "github.com/argocd-agent-mesh/argocd-agent-mesh/api/peer/v1"
	tunnelv1 "github.com/argocd-agent-mesh/argocd-agent-mesh/api/tunnel/v1"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/authn"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/goaway"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/peers"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/tunnel"
)

// metadataHops says that another principal forwards a dial, which is not forwarded again: two that each take the other for the one
// that reaches an agent would send it to and fro.
const metadataHops = "tunnel-hops"

// dialSeparator is in the id of a dial between that of the principal and the secret.
const dialSeparator = "."

// isForwarded reports whether a dial is forwarded by another principal. Nobody else may say that it is.
func (r *Relay) isForwarded(ctx context.Context, grant authn.Grant) (bool, error) {
	if len(metadata.ValueFromIncomingContext(ctx, metadataHops)) == 0 {
		return false, nil
	}
	return true, r.options.Authn.MayDial(grant, peers.Target)
}

// elsewhere returns the connection to the principal through which an agent is to be dialled, nil if that is this one, or nobody.
func (r *Relay) elsewhere(agent string) grpc.ClientConnInterface {
	held, ok := r.options.Roster.Held(peers.Tunnel, agent)
	if !ok || held.Principal == r.options.Roster.Self().ID {
		return nil
	}
	return r.peer(held.Principal)
}

func (r *Relay) peer(principal string) grpc.ClientConnInterface {
	if r.options.Peer == nil {
		return nil
	}
	return r.options.Peer(principal)
}

// dialedBy returns the connection to the principal that a dial's id is of, nil if it is this one, or unknown.
func (r *Relay) dialedBy(id string) grpc.ClientConnInterface {
	principal, _, ok := strings.Cut(id, dialSeparator)
	if !ok || principal == r.options.Roster.Self().ID {
		return nil
	}
	return r.peer(principal)
}

// rawFrames are the options of a call whose frames are copied.
func rawFrames() []grpc.CallOption {
	return []grpc.CallOption{grpc.ForceCodecV2(codec{encoding.GetCodecV2("proto")})}
}

// peerStream is a connection to an agent that another principal has opened.
type peerStream struct {
	grpc.ClientStream
	cancel context.CancelFunc
}

// forward has the principal that reaches an agent open a connection to it. It returns when the agent has accepted.
func (r *Relay) forward(ctx context.Context, c *tunnelConn, conn grpc.ClientConnInterface) (*peerStream, error) {
	calling, cancel := context.WithCancel(metadata.AppendToOutgoingContext(ctx,
		tunnel.MetadataAgent, c.agent, tunnel.MetadataTarget, c.target, metadataHops, "1"))
	stream, err := tunnelv1.NewRelayClient(conn).Dial(calling, rawFrames()...)
	if err == nil {
		err = waitAccepted(stream)
	}
	r.metrics.forwarded.WithLabelValues("dial", dialResult(err)).Inc()
	if err != nil {
		cancel()
		return nil, authn.Status(err)
	}
	return &peerStream{stream, cancel}, nil
}

// carry carries a connection that another principal has opened.
func (r *Relay) carry(ctx context.Context, c *tunnelConn, peer *peerStream) error {
	if err := c.dialer.SendHeader(metadata.Pairs(tunnel.MetadataDial, "accepted")); err != nil {
		return status.Error(codes.Canceled, "the component is gone")
	}
	return r.copyForwarded(ctx, c, peer, c.dialer, "the component")
}

// copyForwarded copies frames between the end of an agent and that of who dials, of which another principal stands for one, until the
// connection is closed. who is the other.
func (r *Relay) copyForwarded(ctx context.Context, c *tunnelConn, agent, dialer end, who string) error {
	r.mu.Lock()
	if isClosed(r.draining) {
		r.mu.Unlock()
		return goaway.Err
	}
	r.begin(c)
	r.mu.Unlock()
	defer r.release(c)
	r.copyFrames(c, agent, dialer)
	return c.waitClosed(ctx, who)
}

// waitAccepted waits until an agent has accepted a dial that was forwarded.
func waitAccepted(stream grpc.ClientStream) error {
	header, err := stream.Header()
	if err != nil {
		return err
	}
	if len(header.Get(tunnel.MetadataDial)) > 0 {
		return nil
	}
	var frame rawFrame
	if err := stream.RecvMsg(&frame); err != nil {
		return err
	}
	frame.data.Free()
	return status.Error(codes.Internal, "the other principal did not say that the agent has accepted")
}

// forwardAccept is an agent's end of a connection that another principal asked it for: something before the principals sends each of its
// streams where it pleases.
func (r *Relay) forwardAccept(ctx context.Context, agent tunnelv1.Tunnel_AcceptServer, conn grpc.ClientConnInterface, id, name string) error {
	calling, cancel := context.WithCancel(metadata.AppendToOutgoingContext(ctx, tunnel.MetadataAgent, name, tunnel.MetadataDial, id))
	defer cancel()
	stream, err := peerv1.NewPeerClient(conn).Accept(calling, rawFrames()...)
	r.metrics.forwarded.WithLabelValues("accept", dialResult(err)).Inc()
	if err != nil {
		return authn.Status(err)
	}
	c := &tunnelConn{agent: name, target: unknownTarget, closed: make(chan struct{})}
	return r.copyForwarded(ctx, c, agent, stream, "the agent")
}

// unknownTarget is that of a connection whose target only the principal knows that dialled it.
const unknownTarget = "unknown"

// AcceptFor is Accept for an agent for which another principal vouches: the metadata names it. ctx is the stream's while that one may.
func (r *Relay) AcceptFor(stream grpc.BidiStreamingServer[tunnelv1.Frame, tunnelv1.Frame], ctx context.Context) error { //nolint:revive // the stream is what it is about
	agent, err := metadataValue(ctx, tunnel.MetadataAgent)
	if err != nil {
		return err
	}
	id, err := metadataValue(ctx, tunnel.MetadataDial)
	if err != nil {
		return err
	}
	return r.acceptDial(ctx, stream, id, agent)
}
