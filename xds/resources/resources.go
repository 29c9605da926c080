// Package resources makes the xDS resources that lead to the principals of a hub, and to the one of them that serves an agent.
//
// Envoy has one cluster for each principal, and never one for each agent: it stalls at a few thousand clusters. What there is for each
// agent is a virtual host of some 300 bytes, which Envoy asks for when the first request for that agent comes (VHDS).
package resources

import (
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	aggregatev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/clusters/aggregate/v3"
	previoushostsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/retry/host/previous_hosts/v3"
	previousprioritiesv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/retry/priority/previous_priorities/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	httpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/peers"
)

// Routes is the name of Envoy's one RouteConfiguration. A virtual host's resource is called Routes + "/" + its domain.
const Routes = "agents"

// connectTimeout is how long a connection to a principal may take. One that is gone with its node does not refuse it, and the
// next principal is tried only after this.
const connectTimeout = 2 * time.Second

// Limits of what one Envoy has open to one principal. Each tunnel connection is a stream for as long as a user looks at something; Envoy's
// own default, 1024, is that of a website.
const (
	maxConnections = 1024
	maxRequests    = 100_000
	maxRetries     = 1024
)

// HostName is the name of the virtual host of a domain. Envoy finds and removes it by this, so it is that of the resource too.
func HostName(domain string) string { return Routes + "/" + domain }

// ToPrincipal is the virtual host of an agent that a principal serves. If the principal cannot be reached another one is asked: any of them
// forwards.
func ToPrincipal(domain, principal string) *routev3.VirtualHost {
	return virtualHost(domain, preferring(principal))
}

// ToAny is the virtual host of an agent that no principal is known to serve. Any of them says why not, or waits for it to come back.
func ToAny(domain string) *routev3.VirtualHost { return virtualHost(domain, peers.AnyCluster) }

// NotFound is the virtual host of what is the name of no agent. Envoy holds a request for which it is given no virtual host.
func NotFound(domain string) *routev3.VirtualHost {
	return &routev3.VirtualHost{
		Name: HostName(domain), Domains: []string{domain},
		Routes: []*routev3.Route{{Match: everything(), Action: &routev3.Route_DirectResponse{DirectResponse: &routev3.DirectResponseAction{
			Status: 404, Body: &corev3.DataSource{Specifier: &corev3.DataSource_InlineString{InlineString: "this is the name of no agent\n"}},
		}}}},
	}
}

// EnvoyRoutes is Envoy's one RouteConfiguration. What is for no agent in particular, by the domain all, goes to any principal; virtual hosts
// of agents are asked for one by one. There is none for "*": it would answer before anybody asks.
func EnvoyRoutes(all string) *routev3.RouteConfiguration {
	host := virtualHost(all, peers.AnyCluster)
	host.Name = all
	return &routev3.RouteConfiguration{Name: Routes, VirtualHosts: []*routev3.VirtualHost{host}, Vhds: &routev3.Vhds{ConfigSource: ads()}}
}

// EnvoyClusters are the clusters that lead to these principals, by their IDs: all together, each, and each with the others behind it.
func EnvoyClusters(principals []string, security TLS) []*clusterv3.Cluster {
	clusters := []*clusterv3.Cluster{envoyCluster(peers.AnyCluster, security)}
	for _, principal := range principals {
		clusters = append(clusters, envoyCluster(peers.Cluster(principal), security), preferred(principal))
	}
	return clusters
}

// Endpoints are the addresses, host:port, of a cluster.
func Endpoints(cluster string, addresses []string) (*endpointv3.ClusterLoadAssignment, error) {
	locality := &endpointv3.LocalityLbEndpoints{
		Locality: &corev3.Locality{Region: "hub"}, LoadBalancingWeight: wrapperspb.UInt32(1), // gRPC takes no endpoints without both
	}
	for _, address := range addresses {
		host, port, err := net.SplitHostPort(address)
		if err != nil {
			return nil, err
		}
		number, err := strconv.ParseUint(port, 10, 16)
		if err != nil {
			return nil, fmt.Errorf("address %q: %w", address, err)
		}
		locality.LbEndpoints = append(locality.LbEndpoints, &endpointv3.LbEndpoint{HostIdentifier: &endpointv3.LbEndpoint_Endpoint{
			Endpoint: &endpointv3.Endpoint{Address: &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
				Address: host, PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: uint32(number)},
			}}}},
		}})
	}
	return &endpointv3.ClusterLoadAssignment{ClusterName: cluster, Endpoints: []*endpointv3.LocalityLbEndpoints{locality}}, nil
}

// preferring is the cluster of a principal with all of them behind it.
func preferring(principal string) string { return peers.Cluster(principal) + "-first" }

// preferred is what preferring names. Envoy's own order of priorities, not a health check, makes the others the next.
func preferred(principal string) *clusterv3.Cluster {
	return &clusterv3.Cluster{
		Name: preferring(principal), ConnectTimeout: durationpb.New(connectTimeout), LbPolicy: clusterv3.Cluster_CLUSTER_PROVIDED,
		ClusterDiscoveryType: &clusterv3.Cluster_ClusterType{ClusterType: &clusterv3.Cluster_CustomClusterType{
			Name:        "envoy.clusters.aggregate",
			TypedConfig: pack(&aggregatev3.ClusterConfig{Clusters: []string{peers.Cluster(principal), peers.AnyCluster}}),
		}},
	}
}

// endpointsCluster is a cluster whose endpoints are a resource of their own. It is all that gRPC reads of one.
func endpointsCluster(name string) *clusterv3.Cluster {
	return &clusterv3.Cluster{
		Name: name, ConnectTimeout: durationpb.New(connectTimeout), ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS},
		EdsClusterConfig: &clusterv3.Cluster_EdsClusterConfig{EdsConfig: ads()}, LbPolicy: clusterv3.Cluster_ROUND_ROBIN,
	}
}

func envoyCluster(name string, security TLS) *clusterv3.Cluster {
	cluster := endpointsCluster(name)
	cluster.TransportSocket = security.socket()
	cluster.TypedExtensionProtocolOptions = map[string]*anypb.Any{
		"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": pack(&httpv3.HttpProtocolOptions{
			UpstreamProtocolOptions: &httpv3.HttpProtocolOptions_ExplicitHttpConfig_{ExplicitHttpConfig: &httpv3.HttpProtocolOptions_ExplicitHttpConfig{
				ProtocolConfig: &httpv3.HttpProtocolOptions_ExplicitHttpConfig_Http2ProtocolOptions{Http2ProtocolOptions: &corev3.Http2ProtocolOptions{
					// A principal that is gone without a word is noticed within 20 s. It takes a ping every 5 s at most.
					ConnectionKeepalive: &corev3.KeepaliveSettings{Interval: durationpb.New(10 * time.Second), Timeout: durationpb.New(10 * time.Second)},
				}},
			}},
		}),
	}
	cluster.CircuitBreakers = &clusterv3.CircuitBreakers{Thresholds: []*clusterv3.CircuitBreakers_Thresholds{{
		MaxConnections: wrapperspb.UInt32(maxConnections), MaxPendingRequests: wrapperspb.UInt32(maxRequests),
		MaxRequests: wrapperspb.UInt32(maxRequests), MaxRetries: wrapperspb.UInt32(maxRetries),
	}}}
	// Only what a principal itself fails at counts: what an agent answers is no sign of the principal's health.
	never := wrapperspb.UInt32(0)
	cluster.OutlierDetection = &clusterv3.OutlierDetection{
		SplitExternalLocalOriginErrors: true, ConsecutiveLocalOriginFailure: wrapperspb.UInt32(2), EnforcingConsecutiveLocalOriginFailure: wrapperspb.UInt32(100),
		EnforcingConsecutive_5Xx: never, EnforcingConsecutiveGatewayFailure: never, EnforcingSuccessRate: never, EnforcingLocalOriginSuccessRate: never,
		Interval: durationpb.New(time.Second), BaseEjectionTime: durationpb.New(time.Second), MaxEjectionTime: durationpb.New(10 * time.Second),
		MaxEjectionPercent: wrapperspb.UInt32(100),
	}
	return cluster
}

// virtualHost sends what a domain is asked to a cluster.
func virtualHost(domain, cluster string) *routev3.VirtualHost {
	never := durationpb.New(0)
	return &routev3.VirtualHost{
		Name: HostName(domain), Domains: []string{domain},
		Routes: []*routev3.Route{{Match: everything(), Action: &routev3.Route_Route{Route: &routev3.RouteAction{
			ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: cluster},
			// Logs, watches and terminals last for days, and may say nothing for hours.
			Timeout: never, IdleTimeout: never, MaxStreamDuration: &routev3.RouteAction_MaxStreamDuration{MaxStreamDuration: never},
			RetryPolicy: retryElsewhere(),
		}}}},
	}
}

// retryElsewhere has another principal asked when the first could not be: each retry goes to a priority, and in that to a host, that was not
// tried. What has reached a principal is never sent again.
func retryElsewhere() *routev3.RetryPolicy {
	return &routev3.RetryPolicy{
		RetryOn: "connect-failure,refused-stream", NumRetries: wrapperspb.UInt32(3),
		RetryPriority: &routev3.RetryPolicy_RetryPriority{
			Name:       "envoy.retry_priorities.previous_priorities",
			ConfigType: &routev3.RetryPolicy_RetryPriority_TypedConfig{TypedConfig: pack(&previousprioritiesv3.PreviousPrioritiesConfig{UpdateFrequency: 1})},
		},
		RetryHostPredicate: []*routev3.RetryPolicy_RetryHostPredicate{{
			Name:       "envoy.retry_host_predicates.previous_hosts",
			ConfigType: &routev3.RetryPolicy_RetryHostPredicate_TypedConfig{TypedConfig: pack(&previoushostsv3.PreviousHostsPredicate{})},
		}},
		HostSelectionRetryMaxAttempts: 5,
	}
}

func everything() *routev3.RouteMatch {
	return &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: ""}}
}

// ads says that a resource comes by the stream that names it.
func ads() *corev3.ConfigSource {
	return &corev3.ConfigSource{
		ResourceApiVersion:    corev3.ApiVersion_V3,
		ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}},
	}
}

// pack puts a message of a known type into a place that takes any.
func pack(m proto.Message) *anypb.Any {
	a, err := anypb.New(m)
	if err != nil {
		panic(err) //nolint:forbidigo // the message is one of ours, and its texts were checked
	}
	return a
}

// TLS is how Envoy secures its connections to principals.
type TLS struct {
	// SDS is the name of the cluster from which Envoy takes its certificate and the trusted CAs, such as that of the SPIRE agent. If it is
	// empty, they are the bootstrap's own secrets of these names.
	SDS string
	// Certificate and Roots are the names of the secrets; none of both means plain text.
	Certificate, Roots string
	// Principal is the SPIFFE ID or, without "://", the DNS name that a principal's certificate has to have.
	Principal string
}

// socket is the transport socket of a cluster, nil for plain text.
func (t TLS) socket() *corev3.TransportSocket {
	if t.Certificate == "" {
		return nil
	}
	kind := tlsv3.SubjectAltNameMatcher_DNS
	if strings.Contains(t.Principal, "://") {
		kind = tlsv3.SubjectAltNameMatcher_URI
	}
	return &corev3.TransportSocket{
		Name: "envoy.transport_sockets.tls",
		ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: pack(&tlsv3.UpstreamTlsContext{
			CommonTlsContext: &tlsv3.CommonTlsContext{
				TlsParams:                      &tlsv3.TlsParameters{TlsMinimumProtocolVersion: tlsv3.TlsParameters_TLSv1_3, TlsMaximumProtocolVersion: tlsv3.TlsParameters_TLSv1_3},
				AlpnProtocols:                  []string{"h2"},
				TlsCertificateSdsSecretConfigs: []*tlsv3.SdsSecretConfig{t.secret(t.Certificate)},
				ValidationContextType: &tlsv3.CommonTlsContext_CombinedValidationContext{CombinedValidationContext: &tlsv3.CommonTlsContext_CombinedCertificateValidationContext{
					DefaultValidationContext: &tlsv3.CertificateValidationContext{MatchTypedSubjectAltNames: []*tlsv3.SubjectAltNameMatcher{{
						SanType: kind, Matcher: &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Exact{Exact: t.Principal}},
					}}},
					ValidationContextSdsSecretConfig: t.secret(t.Roots),
				}},
			},
		})},
	}
}

// secret names one of Envoy's secrets.
func (t TLS) secret(name string) *tlsv3.SdsSecretConfig {
	config := &tlsv3.SdsSecretConfig{Name: name}
	if t.SDS != "" {
		config.SdsConfig = &corev3.ConfigSource{
			ResourceApiVersion: corev3.ApiVersion_V3,
			ConfigSourceSpecifier: &corev3.ConfigSource_ApiConfigSource{ApiConfigSource: &corev3.ApiConfigSource{
				ApiType: corev3.ApiConfigSource_GRPC, TransportApiVersion: corev3.ApiVersion_V3,
				GrpcServices: []*corev3.GrpcService{{TargetSpecifier: &corev3.GrpcService_EnvoyGrpc_{EnvoyGrpc: &corev3.GrpcService_EnvoyGrpc{ClusterName: t.SDS}}}},
			}},
		}
	}
	return config
}
