// Package routes serves the xDS resources of a hub, and follows which principal holds the tunnel of which agent.
package routes

import (
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/peers"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/xds/resources"
)

// lingering is how long the cluster of a principal stays that is not connected any more. Connections to it may still be good, and routes
// that lead there are replaced before it goes.
const lingering = 10 * time.Minute

// TableOptions configure a Table.
type TableOptions struct {
	// Domain is that of agents: what is for berlin is for the host berlin.<domain>, and what is for any principal for the domain itself.
	Domain string
	// Listener is the name by which gRPC asks for the principals: the NAME of xds:///NAME.
	Listener string
	// Lookup is where gRPC asks which principal serves an agent: a gRPC target of the principals. Any of them is asked if it is empty.
	Lookup string
	// Version begins the versions of resources. It is of this process alone, since the versions of another mean something else.
	Version string
	// Envoy is how Envoy secures its connections to principals.
	Envoy resources.TLS
	// MaxStrangers is how many hosts are kept that were asked for, and that no principal holds.
	MaxStrangers int
}

// Table is the xDS resources of a hub: what Envoy gets by delta xDS, and gRPC by state of the world. All methods may be called from several
// goroutines.
type Table struct {
	options TableOptions

	clusters, grpcClusters, endpoints *cache.LinearCache
	envoyRoutes, listeners            *cache.LinearCache
	hosts                             *hosts

	mu         sync.Mutex
	principals map[string]known // by ID. Guarded by mu
}

// known is a principal that is connected, or was lately.
type known struct {
	peers.Peer

	gone time.Time // when it was seen to be; zero if it is connected
}

// NewTable returns the table of a hub of which nothing is known yet.
func NewTable(o TableOptions) (*Table, error) {
	linear := func(kind string, fixed map[string]types.Resource) *cache.LinearCache {
		return cache.NewLinearCache(kind, cache.WithVersionPrefix(o.Version), cache.WithInitialResources(fixed))
	}
	t := &Table{
		options: o, principals: make(map[string]known), hosts: newHosts(o.Domain, o.MaxStrangers, o.Version),
		clusters: linear(resource.ClusterType, nil), grpcClusters: linear(resource.ClusterType, nil), endpoints: linear(resource.EndpointType, nil),
		envoyRoutes: linear(resource.RouteType, map[string]types.Resource{resources.Routes: resources.EnvoyRoutes(o.Domain)}),
		listeners:   linear(resource.ListenerType, map[string]types.Resource{o.Listener: resources.GRPCListener(o.Listener, o.Lookup)}),
	}
	return t, t.publishPrincipals()
}

// SetPrincipals says which principals are connected, by their IDs.
func (t *Table) SetPrincipals(connected map[string]peers.Peer) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	for id, peer := range connected {
		t.principals[id] = known{Peer: peer}
	}
	for id, k := range t.principals {
		if _, is := connected[id]; !is && k.gone.IsZero() {
			k.gone = now
			t.principals[id] = k
		}
	}
	return t.publishPrincipals()
}

// Move says which principals hold the tunnels of agents from now on, by the agents' names; empty for none. It takes effect in one update.
func (t *Table) Move(agents map[string]string) error { return t.hosts.move(agents) }

// Age forgets what was not needed for long.
func (t *Table) Age(now time.Time) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	maps.DeleteFunc(t.principals, func(_ string, k known) bool { return !k.gone.IsZero() && now.Sub(k.gone) >= lingering })
	return errors.Join(t.publishPrincipals(), t.hosts.age(now))
}

// publishPrincipals publishes clusters and endpoints. mu is held.
func (t *Table) publishPrincipals() error {
	ids := slices.Sorted(maps.Keys(t.principals))
	endpoints, err := t.assignments(ids)
	if err != nil {
		return err
	}
	return errors.Join(
		replace(t.endpoints, endpoints),
		replace(t.clusters, byName(resources.EnvoyClusters(ids, t.options.Envoy))),
		replace(t.grpcClusters, byName(resources.GRPCClusters(ids))),
	)
}

// assignments returns the endpoints of all clusters. All principals together are those that are connected and stay or, should none,
// those that are or were.
func (t *Table) assignments(ids []string) (map[string]types.Resource, error) {
	var connected, lately []string
	made := make(map[string]types.Resource, len(ids)+1)
	var err error
	for _, id := range ids {
		k := t.principals[id]
		lately = append(lately, k.Address)
		if k.gone.IsZero() && !k.Draining {
			connected = append(connected, k.Address)
		}
		if made[peers.Cluster(id)], err = resources.Endpoints(peers.Cluster(id), []string{k.Address}); err != nil {
			return nil, err
		}
	}
	all := connected
	if len(all) == 0 {
		all = lately
	}
	slices.Sort(all)
	made[peers.AnyCluster], err = resources.Endpoints(peers.AnyCluster, slices.Compact(all))
	return made, err
}

func byName(clusters []*clusterv3.Cluster) map[string]types.Resource {
	named := make(map[string]types.Resource, len(clusters))
	for _, cluster := range clusters {
		named[cluster.GetName()] = cluster
	}
	return named
}

// replace makes these the resources of a cache, and leaves alone what is equal: who subscribed is not woken for that.
func replace(c *cache.LinearCache, wanted map[string]types.Resource) error {
	has := c.GetResources()
	changed, gone := make(map[string]types.Resource), []string{}
	for name, resource := range wanted {
		if old, ok := has[name]; !ok || !proto.Equal(old, resource) {
			changed[name] = resource
		}
	}
	for name := range has {
		if _, still := wanted[name]; !still {
			gone = append(gone, name)
		}
	}
	if len(changed)+len(gone) == 0 {
		return nil
	}
	return c.UpdateResources(changed, gone)
}

// maxSubscribed is how many names of a type one client may ask for, and how many resources it may say that it has. Envoy never says that it needs
// a virtual host no more, so they grow with every name that its own clients choose, and each of its requests costs as many steps. Whoever asks
// for more is disconnected.
const maxSubscribed = 50_000

// configs is what an xDS server reads: other resources for Envoy, which speaks delta xDS, than for gRPC, which does not. gRPC refuses
// clusters with security that it does not know, and brings its own.
type configs struct {
	cache.Cache // delta

	states  cache.Cache // of the world
	version string      // that of resources begins with it
}

// Configs returns what an xDS server reads.
func (t *Table) Configs() cache.Cache {
	return configs{
		Cache: mux(map[string]cache.Cache{
			resource.ClusterType: t.clusters, resource.EndpointType: t.endpoints, resource.RouteType: t.envoyRoutes, resource.VirtualHostType: t.hosts,
		}),
		states: mux(map[string]cache.Cache{
			resource.ListenerType: t.listeners, resource.ClusterType: t.grpcClusters, resource.EndpointType: t.endpoints,
		}),
		version: t.options.Version,
	}
}

// CreateDeltaWatch implements [cache.ConfigWatcher].
func (c configs) CreateDeltaWatch(request *cache.DeltaRequest, subscription cache.Subscription, out chan cache.DeltaResponse) (func(), error) {
	if len(subscription.SubscribedResources())+len(subscription.SubscribedPrefixes()) > maxSubscribed || len(subscription.ReturnedResources()) > maxSubscribed {
		return nil, status.Errorf(codes.ResourceExhausted, "the client has asked for more than %d names: limit who may choose an :authority", maxSubscribed)
	}
	return c.Cache.CreateDeltaWatch(request, subscription, out) //nolint:wrapcheck // the server's
}

// CreateWatch implements [cache.ConfigWatcher].
func (c configs) CreateWatch(request *cache.Request, subscription cache.Subscription, out chan cache.Response) (func(), error) {
	if request.GetErrorDetail() != nil {
		// The client has just refused what there is. With its own version, which is of another process or none, it would get the same at once,
		// and refuse that too, as fast as the wire carries it.
		refused := &cache.Request{}
		proto.Merge(refused, request)
		refused.VersionInfo = c.version
		request = refused
	}
	return c.states.CreateWatch(request, subscription, out) //nolint:wrapcheck // the server's
}

func mux(caches map[string]cache.Cache) cache.Cache {
	return &cache.MuxCache{
		Classify:      func(request *cache.Request) string { return request.GetTypeUrl() },
		ClassifyDelta: func(request *cache.DeltaRequest) string { return request.GetTypeUrl() },
		Caches:        caches,
	}
}
