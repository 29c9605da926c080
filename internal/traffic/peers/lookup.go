package peers

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	lookupv1 "github.com/argocd-agent-mesh/argocd-agent-mesh/api/lookup/v1"
)

// Names that xds and principals have in common.
const (
	// AnyCluster is all principals of the hub together.
	AnyCluster = "principals"
	// AnyLookedUp is the same for what is looked up. grpc-go waits for ever for a cluster that is looked up if a route names it too (1.85:
	// SubscribeToCluster tells nobody of what is known already).
	AnyLookedUp = "principals-looked-up"
	// LookupKey is the key of an agent's name in a route lookup.
	LookupKey = "agent"
)

// Cluster is one principal, by the ID of its process.
func Cluster(principal string) string { return "principal-" + principal }

// Lookup implements gRPC's route lookup service (grpc.lookup.v1.RouteLookupService): it tells a gRPC client, which has the hub's clusters
// from xds, to which principal it should go with what is for an agent. gRPC wants who answers to have the identity of those that
// it sends clients to, so principals answer and not xds.
type Lookup struct {
	roster *Roster
	admit  Admit
	target []string
}

// NewLookup returns a service for components with one of these targets.
func NewLookup(roster *Roster, admit Admit, targets ...string) *Lookup {
	return &Lookup{roster: roster, admit: admit, target: targets}
}

// Register registers the service.
func (l *Lookup) Register(server grpc.ServiceRegistrar) { server.RegisterService(lookupService(), l) }

// routeLookup answers one request: the principal that holds the agent's tunnel, if one does, and then any.
func (l *Lookup) routeLookup(ctx context.Context, request *lookupv1.RouteLookupRequest) (*lookupv1.RouteLookupResponse, error) {
	_, end, err := l.admit(ctx, l.target...)
	if err != nil {
		return nil, err
	}
	defer end()
	agent := request.GetKeyMap()[LookupKey]
	if agent == "" {
		return nil, status.Errorf(codes.InvalidArgument, "the key %q is missing: it is the agent's name", LookupKey)
	}
	answer := &lookupv1.RouteLookupResponse{}
	held, ok := l.roster.Held(Tunnel, agent)
	if ok {
		answer.Targets = append(answer.Targets, Cluster(held.Principal))
	}
	answer.Targets = append(answer.Targets, AnyLookedUp)
	// gRPC asks xds for the cluster of each target, and holds requests up that lead to one that it has not. So it gets to know all of them with
	// the first, in case xds is away when an agent moves.
	for _, principal := range l.roster.Principals() {
		if !ok || principal != held.Principal {
			answer.Targets = append(answer.Targets, Cluster(principal))
		}
	}
	return answer, nil
}

// lookupService describes the service, by the name that it has on the wire.
func lookupService() *grpc.ServiceDesc {
	return &grpc.ServiceDesc{
		ServiceName: "grpc.lookup.v1.RouteLookupService",
		HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{{
			MethodName: "RouteLookup",
			Handler: func(server any, ctx context.Context, decode func(any) error, intercept grpc.UnaryServerInterceptor) (any, error) {
				request := new(lookupv1.RouteLookupRequest)
				if err := decode(request); err != nil {
					return nil, err
				}
				handle := func(ctx context.Context, request any) (any, error) {
					return server.(*Lookup).routeLookup(ctx, request.(*lookupv1.RouteLookupRequest)) //nolint:forcetypeassert // both are ours
				}
				if intercept == nil {
					return handle(ctx, request)
				}
				return intercept(ctx, request, &grpc.UnaryServerInfo{Server: server, FullMethod: "/grpc.lookup.v1.RouteLookupService/RouteLookup"}, handle)
			},
		}},
		Metadata: "api/lookup/v1/lookup.proto",
	}
}
