package resources

import (
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

	lookupv1 "github.com/argocd-agent-mesh/argocd-agent-mesh/api/lookup/v1"
	tunnelv1 "github.com/argocd-agent-mesh/argocd-agent-mesh/api/tunnel/v1"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/peers"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/tunnel"
)

// How gRPC looks up which principal serves an agent (RLS). An answer that is out of date costs a hop, so a second is soon enough: whoever
// looks at an agent that has moved reaches it directly from the second request on.
const (
	lookupTimeout = time.Second
	lookupStale   = time.Second
	lookupMax     = 5 * time.Minute
	lookupCache   = 4 << 20 // bytes: some 20,000 agents
)

// GRPCListener is what gRPC gets for xds:///name: a channel to all principals, on which what is for an agent goes to the one that serves it.
// Principals themselves are asked which that is, at the gRPC target lookup; with none, each request goes to any of them.
func GRPCListener(name, lookup string) *listenerv3.Listener {
	routes := &routev3.RouteConfiguration{Name: name, VirtualHosts: []*routev3.VirtualHost{{
		Name: name, Domains: []string{"*"},
		Routes: []*routev3.Route{{Match: everything(), Action: &routev3.Route_Route{Route: &routev3.RouteAction{
			ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: peers.AnyCluster},
		}}}},
	}}}
	if lookup != "" {
		byAgent := &routev3.Route{
			Match: &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Path{Path: tunnelv1.Relay_Dial_FullMethodName}},
			Action: &routev3.Route_Route{Route: &routev3.RouteAction{
				ClusterSpecifier: &routev3.RouteAction_ClusterSpecifierPlugin{ClusterSpecifierPlugin: "agents"},
			}},
		}
		routes.VirtualHosts[0].Routes = append([]*routev3.Route{byAgent}, routes.VirtualHosts[0].Routes...)
		routes.ClusterSpecifierPlugins = []*routev3.ClusterSpecifierPlugin{{
			Extension: &corev3.TypedExtensionConfig{Name: "agents", TypedConfig: lookupConfig(lookup)},
		}}
	}
	return &listenerv3.Listener{Name: name, ApiListener: &listenerv3.ApiListener{ApiListener: pack(&hcmv3.HttpConnectionManager{
		RouteSpecifier: &hcmv3.HttpConnectionManager_RouteConfig{RouteConfig: routes},
		HttpFilters:    []*hcmv3.HttpFilter{{Name: "router", ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: pack(&routerv3.Router{})}}},
	})}}
}

// lookupConfig has gRPC look up the cluster of a request by the agent that it is for.
func lookupConfig(lookup string) *anypb.Any {
	config := pack(&lookupv1.RouteLookupClusterSpecifier{RouteLookupConfig: &lookupv1.RouteLookupConfig{
		GrpcKeybuilders: []*lookupv1.GrpcKeyBuilder{{
			Names:   []*lookupv1.GrpcKeyBuilder_Name{{Service: tunnelv1.Relay_ServiceDesc.ServiceName}},
			Headers: []*lookupv1.NameMatcher{{Key: peers.LookupKey, Names: []string{tunnel.MetadataAgent}}},
		}},
		LookupService: lookup, LookupServiceTimeout: durationpb.New(lookupTimeout),
		MaxAge: durationpb.New(lookupMax), StaleAge: durationpb.New(lookupStale), CacheSizeBytes: lookupCache,
		DefaultTarget: peers.AnyLookedUp,
	}})
	config.TypeUrl = "type.googleapis.com/grpc.lookup.v1.RouteLookupClusterSpecifier" // see api/lookup
	return config
}

// GRPCClusters are the clusters of these principals for gRPC: all together, and each. How a connection is secured is for the program to say.
func GRPCClusters(principals []string) []*clusterv3.Cluster {
	lookedUp := endpointsCluster(peers.AnyLookedUp)
	lookedUp.EdsClusterConfig.ServiceName = peers.AnyCluster
	clusters := []*clusterv3.Cluster{endpointsCluster(peers.AnyCluster), lookedUp}
	for _, principal := range principals {
		clusters = append(clusters, endpointsCluster(peers.Cluster(principal)))
	}
	return clusters
}
