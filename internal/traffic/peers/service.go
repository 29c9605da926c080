package peers

import (
	"context"
	"maps"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	peerv1 "github.com/argocd-agent-mesh/argocd-agent-mesh/api/peer/v1"
	tunnelv1 "github.com/argocd-agent-mesh/argocd-agent-mesh/api/tunnel/v1"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/version"
)

// Protocol is the version of the service Peer that this build speaks.
const Protocol = 1

// Target is what a component may that is a principal: see --hub-components. TargetRoster only lets it know which principal serves which
// agent.
const (
	Target       = "peer"
	TargetRoster = "roster"
)

// maxHeld is how many things one message names: some 200 kB.
const maxHeld = 1000

// Admit authenticates the caller of a stream, who has to be a component with one of these targets. The context that it returns ends when
// the caller may no more, with a status as its cause; end must be called when the stream is over. Errors are gRPC's, for the caller.
type Admit func(stream context.Context, targets ...string) (ctx context.Context, end func(), err error)

// Service implements the gRPC service Peer.
type Service struct {
	peerv1.UnimplementedPeerServer

	roster *Roster
	admit  Admit
	accept func(grpc.BidiStreamingServer[tunnelv1.Frame, tunnelv1.Frame], context.Context) error
}

// NewService returns a service. accept serves Accept, of a caller that is a principal; the context is the stream's while the caller may.
func NewService(roster *Roster, admit Admit, accept func(stream grpc.BidiStreamingServer[tunnelv1.Frame, tunnelv1.Frame], ctx context.Context) error,
) *Service {
	return &Service{roster: roster, admit: admit, accept: accept}
}

// Watch implements peerv1.PeerServer.
func (s *Service) Watch(_ *peerv1.WatchRequest, stream grpc.ServerStreamingServer[peerv1.RosterUpdate]) error {
	ctx, end, err := s.admit(stream.Context(), Target, TargetRoster)
	if err != nil {
		return err
	}
	defer end()
	w := s.roster.watch()
	defer s.roster.unwatch(w)
	me := &peerv1.Principal{Id: s.roster.self.ID, Name: s.roster.self.Name, Build: version.Version(), Protocol: Protocol}
	for first := true; ; first = false {
		updates := encode(s.roster.take(w))
		for i, update := range updates {
			if first && i == 0 {
				update.Principal = me
			}
			update.Draining = s.roster.Draining()
			update.More = first && i < len(updates)-1
			if err := stream.Send(update); err != nil {
				return err
			}
		}
		select {
		case <-w.changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Accept implements peerv1.PeerServer.
func (s *Service) Accept(stream grpc.BidiStreamingServer[tunnelv1.Frame, tunnelv1.Frame]) error {
	ctx, end, err := s.admit(stream.Context(), Target)
	if err != nil {
		return err
	}
	defer end()
	return s.accept(stream, ctx)
}

// encode returns messages of what changed, one at least.
func encode(held map[key]Holding, released []key) []*peerv1.RosterUpdate {
	updates := []*peerv1.RosterUpdate{{}}
	last := func() *peerv1.RosterUpdate {
		at := updates[len(updates)-1]
		if len(at.Held)+len(at.Released) >= maxHeld {
			at = &peerv1.RosterUpdate{}
			updates = append(updates, at)
		}
		return at
	}
	for _, k := range slices.SortedFunc(maps.Keys(held), compare) {
		h, at := held[k], last()
		at.Held = append(at.Held, &peerv1.Held{Agent: k.agent, Kind: k.kind, Epoch: h.Epoch, Since: timestamppb.New(h.Since), Build: h.Build, Mode: h.Mode})
	}
	slices.SortFunc(released, compare)
	for _, k := range released {
		at := last()
		at.Released = append(at.Released, &peerv1.Held{Agent: k.agent, Kind: k.kind})
	}
	return updates
}
