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
	"github.com/argocd-agent-mesh/argocd-agent-mesh/principal/authn"
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

// Service implements the gRPC service Peer.
type Service struct {
	peerv1.UnimplementedPeerServer

	roster *Roster
	authn  *authn.Authenticator
	accept func(grpc.BidiStreamingServer[tunnelv1.Frame, tunnelv1.Frame], context.Context) error
}

// NewService returns a service. accept serves Accept, of a caller that is a principal; the context is the stream's while the caller may.
func NewService(roster *Roster, authenticator *authn.Authenticator,
	accept func(stream grpc.BidiStreamingServer[tunnelv1.Frame, tunnelv1.Frame], ctx context.Context) error,
) *Service {
	return &Service{roster: roster, authn: authenticator, accept: accept}
}

// Watch implements peerv1.PeerServer.
func (s *Service) Watch(_ *peerv1.WatchRequest, stream grpc.ServerStreamingServer[peerv1.RosterUpdate]) error {
	ctx, grant, err := s.authn.Component(stream.Context())
	if err != nil {
		return err
	}
	defer grant.End()
	if !slices.Contains(grant.Targets, Target) {
		if err := s.authn.MayDial(grant, TargetRoster); err != nil {
			return err
		}
	}
	w := s.roster.watch()
	defer s.roster.unwatch(w)
	me := &peerv1.Principal{Id: s.roster.self.ID, Name: s.roster.self.Name, Build: version.Version(), Protocol: Protocol}
	for first := true; ; first = false {
		updates := encode(s.roster.take(w))
		for i, update := range updates {
			if first && i == 0 {
				update.Principal = me
			}
			update.More = first && i < len(updates)-1
			if err := stream.Send(update); err != nil {
				return err
			}
		}
		select {
		case <-w.changed:
		case <-ctx.Done():
			return authn.Status(context.Cause(ctx))
		}
	}
}

// Accept implements peerv1.PeerServer.
func (s *Service) Accept(stream grpc.BidiStreamingServer[tunnelv1.Frame, tunnelv1.Frame]) error {
	ctx, grant, err := s.authn.Component(stream.Context())
	if err != nil {
		return err
	}
	defer grant.End()
	if err := s.authn.MayDial(grant, Target); err != nil {
		return err
	}
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
