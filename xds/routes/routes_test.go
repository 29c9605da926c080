package routes_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/peers"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/xds/routes"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const domain = "agents.test"

// hub is a table, its server, and a connection to that.
type hub struct {
	*routes.Table

	server  *routes.Server
	conn    *grpc.ClientConn
	metrics *prometheus.Registry
	log     *lockedBuffer
}

// lockedBuffer is a log that is read while it is written.
type lockedBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// newHub serves the table of a hub with two principals, which are called one and two.
func newHub(t *testing.T, maxStrangers int) *hub {
	t.Helper()
	table, err := routes.NewTable(routes.TableOptions{Domain: domain, Listener: "principal", Lookup: "dns:///principal:8443", Version: "test.", MaxStrangers: maxStrangers})
	require.NoError(t, err)
	h := &hub{Table: table, metrics: prometheus.NewRegistry(), log: &lockedBuffer{}}
	require.NoError(t, h.SetPrincipals(principals("one", "two")))
	ctx, cancel := context.WithCancel(context.Background())
	h.server = routes.NewServer(ctx, table, h.metrics, slog.New(slog.NewTextHandler(h.log, nil)))
	listener, server := bufconn.Listen(1<<20), grpc.NewServer()
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(server, h.server)
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) })
	h.conn, err = grpc.NewClient("passthrough:///hub", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))
	require.NoError(t, err)
	t.Cleanup(func() { _ = h.conn.Close(); cancel(); server.Stop(); serving.Wait() })
	return h
}

// principals are connected ones, by their IDs.
func principals(ids ...string) map[string]peers.Peer {
	all := make(map[string]peers.Peer)
	for i, id := range ids {
		all[id] = peers.Peer{ID: id, Name: "pod-" + id, Build: "v1", Address: fmt.Sprintf("192.0.2.%d:8443", i+1)}
	}
	return all
}

// client is a delta stream, as Envoy has one.
type client struct {
	t      *testing.T
	stream discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesClient
}

func (h *hub) connect(t *testing.T) *client {
	t.Helper()
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(h.conn).DeltaAggregatedResources(t.Context())
	require.NoError(t, err)
	return &client{t, stream}
}

// asks sends a request for resources, and says that those were received which a nonce names.
func (c *client) asks(kind, nonce string, names ...string) {
	c.t.Helper()
	c.sends(&discoveryv3.DeltaDiscoveryRequest{
		Node: &corev3.Node{Id: "envoy-1"}, TypeUrl: kind, ResourceNamesSubscribe: names, ResponseNonce: nonce,
	})
}

func (c *client) sends(request *discoveryv3.DeltaDiscoveryRequest) {
	c.t.Helper()
	require.NoError(c.t, c.stream.Send(request))
}

func (c *client) gets() *discoveryv3.DeltaDiscoveryResponse {
	c.t.Helper()
	answer, err := c.stream.Recv()
	require.NoError(c.t, err)
	return answer
}

// hosts returns where the virtual hosts of an answer lead, by the agents' names: to a cluster, or to nowhere.
func (c *client) hosts(answer *discoveryv3.DeltaDiscoveryResponse) map[string]string {
	c.t.Helper()
	lead := make(map[string]string)
	for _, r := range answer.GetResources() {
		host := &routev3.VirtualHost{}
		require.NoError(c.t, r.GetResource().UnmarshalTo(host))
		require.Equal(c.t, r.GetName(), host.GetName(), "Envoy removes a host by its resource's name")
		require.Len(c.t, host.GetDomains(), 1)
		require.Equal(c.t, r.GetName(), "agents/"+host.GetDomains()[0])
		to := host.GetRoutes()[0].GetRoute().GetCluster()
		if refusal := host.GetRoutes()[0].GetDirectResponse(); refusal != nil {
			to = fmt.Sprint(refusal.GetStatus())
		}
		lead[strings.TrimSuffix(host.GetDomains()[0], "."+domain)] = to
	}
	return lead
}

func host(agent string) string { return "agents/" + agent + "." + domain }

// subscribed connects a client that has been told where these agents are, and has not been asked for more.
func (h *hub) subscribed(t *testing.T, agents ...string) (*client, map[string]string) {
	t.Helper()
	c := h.connect(t)
	names := make([]string, len(agents))
	for i, agent := range agents {
		names[i] = host(agent)
	}
	c.asks(resource.VirtualHostType, "", names...)
	answer := c.gets()
	c.asks(resource.VirtualHostType, answer.GetNonce())
	return c, c.hosts(answer)
}

// Envoy's first request for virtual hosts names none, and its listener opens only after an answer that names one.
func TestFirstRequestForHostsIsAnswered(t *testing.T) {
	h := newHub(t, 10)
	require.NoError(t, h.Move(map[string]string{"berlin": "one"}))
	c := h.connect(t)
	c.asks(resource.VirtualHostType, "")
	answer := c.gets()
	require.Empty(t, answer.GetResources(), "what was not asked for is not sent")
	require.Len(t, answer.GetRemovedResources(), 1)
	c.asks(resource.VirtualHostType, answer.GetNonce(), host("berlin"))
	require.Equal(t, map[string]string{"berlin": "principal-one-first"}, c.hosts(c.gets()))
}

func TestAgentsAreFollowedInOneUpdate(t *testing.T) {
	h := newHub(t, 10)
	require.NoError(t, h.Move(map[string]string{"berlin": "one", "oslo": "one", "rome": "one"}))
	c, lead := h.subscribed(t, "berlin", "oslo")
	require.Equal(t, map[string]string{"berlin": "principal-one-first", "oslo": "principal-one-first"}, lead)
	require.NoError(t, h.Move(map[string]string{"berlin": "two", "oslo": "two", "rome": "two"}))
	answer := c.gets()
	require.Equal(t, map[string]string{"berlin": "principal-two-first", "oslo": "principal-two-first"}, c.hosts(answer), "and nothing of others")
	c.asks(resource.VirtualHostType, answer.GetNonce())
	require.NoError(t, h.Move(map[string]string{"berlin": "", "oslo": "two"}))
	require.Equal(t, map[string]string{"berlin": "principals"}, c.hosts(c.gets()), "any principal knows when the agent is back")
}

// Envoy holds a request until there is a host for it, so there is one for every name; nobody makes xds keep them all.
func TestUnknownHostsAreAnsweredAndForgotten(t *testing.T) {
	h := newHub(t, 3)
	c, lead := h.subscribed(t, "nobody", "No-Name", "a.b")
	require.Equal(t, map[string]string{"nobody": "principals", "No-Name": "404", "a.b": "404"}, lead)
	c.asks(resource.VirtualHostType, "", "agents/elsewhere.test")
	answer := c.gets()
	require.Equal(t, map[string]string{"elsewhere.test": "404"}, c.hosts(answer))
	require.Len(t, answer.GetRemovedResources(), 1, "the oldest gives way")
	c.asks(resource.VirtualHostType, answer.GetNonce())

	require.NoError(t, h.Age(time.Now().Add(5*time.Minute)))
	gone := testutil.ToFloat64(gathered{h, "argocd_xds_unknown_hosts"})
	require.InDelta(t, 3, gone, 0)
	require.NoError(t, h.Age(time.Now().Add(11*time.Minute)))
	require.Len(t, c.gets().GetRemovedResources(), 3)

	require.NoError(t, h.Move(map[string]string{"nobody": "one"}))
	c, lead = h.subscribed(t, "nobody")
	require.Equal(t, map[string]string{"nobody": "principal-one-first"}, lead)
	require.NoError(t, h.Age(time.Now().Add(time.Hour)))
	require.NoError(t, h.Move(map[string]string{"nobody": "two"}))
	require.Equal(t, map[string]string{"nobody": "principal-two-first"}, c.hosts(c.gets()), "an agent's host does not age")
}

// gathered is one gauge of a hub's.
type gathered struct {
	hub  *hub
	name string
}

func (gathered) Describe(chan<- *prometheus.Desc) {}

func (g gathered) Collect(metrics chan<- prometheus.Metric) {
	families, err := g.hub.metrics.Gather()
	if err != nil {
		panic(err)
	}
	for _, family := range families {
		if family.GetName() == g.name {
			metrics <- prometheus.MustNewConstMetric(prometheus.NewDesc(g.name, "x", nil, nil), prometheus.GaugeValue,
				family.GetMetric()[0].GetGauge().GetValue()+family.GetMetric()[0].GetCounter().GetValue())
		}
	}
}

// An Envoy that comes back says what it has, and "*", which would be all agents.
func TestReconnectBringsWhatHasChangedOnly(t *testing.T) {
	h := newHub(t, 10)
	require.NoError(t, h.Move(map[string]string{"berlin": "one", "oslo": "one", "rome": "one"}))
	c := h.connect(t)
	c.asks(resource.VirtualHostType, "", host("berlin"), host("oslo"))
	had := make(map[string]string)
	for _, r := range c.gets().GetResources() {
		had[r.GetName()] = r.GetVersion()
	}
	require.NoError(t, h.Move(map[string]string{"oslo": "two"}))
	again := h.connect(t)
	again.sends(&discoveryv3.DeltaDiscoveryRequest{
		Node: &corev3.Node{Id: "envoy-1"}, TypeUrl: resource.VirtualHostType,
		ResourceNamesSubscribe: append(slices.Sorted(maps.Keys(had)), "*"), InitialResourceVersions: had,
	})
	require.Equal(t, map[string]string{"oslo": "principal-two-first"}, again.hosts(again.gets()))
}

// Clusters are there before what leads to them, and stay for a while after.
func TestPrincipalsComeAndGo(t *testing.T) {
	h := newHub(t, 10)
	addresses := func(cluster string) []string {
		c := h.connect(t)
		c.asks(resource.EndpointType, "", cluster)
		answer := c.gets()
		require.Len(t, answer.GetResources(), 1)
		endpoints := &endpointv3.ClusterLoadAssignment{}
		require.NoError(t, answer.GetResources()[0].GetResource().UnmarshalTo(endpoints))
		var all []string
		for _, e := range endpoints.GetEndpoints()[0].GetLbEndpoints() {
			all = append(all, e.GetEndpoint().GetAddress().GetSocketAddress().GetAddress())
		}
		return all
	}
	clusters := func() []string {
		c := h.connect(t)
		c.asks(resource.ClusterType, "")
		var all []string
		for _, r := range c.gets().GetResources() {
			all = append(all, r.GetName())
		}
		slices.Sort(all)
		return all
	}
	both := []string{"principal-one", "principal-one-first", "principal-two", "principal-two-first", "principals"}
	require.Equal(t, both, clusters())
	require.Equal(t, []string{"192.0.2.1", "192.0.2.2"}, addresses("principals"))
	leaving := principals("one", "two")
	two := leaving["two"]
	two.Draining = true
	leaving["two"] = two
	require.NoError(t, h.SetPrincipals(leaving))
	require.Equal(t, []string{"192.0.2.1"}, addresses("principals"), "nobody new goes to the one that shuts down")
	require.Equal(t, []string{"192.0.2.2"}, addresses("principal-two"), "but for the agents that it serves")
	require.NoError(t, h.SetPrincipals(principals("one")))
	require.Equal(t, []string{"192.0.2.1"}, addresses("principals"), "nobody new goes to the one that is gone")
	require.Equal(t, []string{"192.0.2.2"}, addresses("principal-two"), "and who is there stays")
	require.Equal(t, both, clusters())
	require.NoError(t, h.Age(time.Now().Add(11*time.Minute)))
	require.Equal(t, []string{"principal-one", "principal-one-first", "principals"}, clusters())
	require.NoError(t, h.SetPrincipals(nil))
	require.Equal(t, []string{"192.0.2.1"}, addresses("principals"), "the last ones are better than none")
}

func TestRejectionIsLoggedAndCounted(t *testing.T) {
	h := newHub(t, 10)
	c := h.connect(t)
	c.asks(resource.ClusterType, "")
	c.sends(&discoveryv3.DeltaDiscoveryRequest{
		TypeUrl: resource.ClusterType, ResponseNonce: c.gets().GetNonce(),
		ErrorDetail: &rpcstatus.Status{Code: int32(codes.InvalidArgument), Message: "no such extension"},
	})
	c.asks(resource.EndpointType, "", "principals") // is read after it
	c.gets()
	require.Contains(t, h.log.String(), `msg="Client rejected resources (NACK); it keeps those that it has" node=envoy-1 type=Cluster reason="no such extension"`)
	require.InDelta(t, 1, testutil.ToFloat64(gathered{h, "argocd_xds_rejections_total"}), 0)

	dump := h.dump(t)
	require.Len(t, dump.Principals, 2)
	require.Equal(t, "pod-one", dump.Principals[0].Name)
	require.Equal(t, "envoy-1", dump.Clients[0].Node)
	require.Equal(t, map[string]string{"Cluster": "no such extension"}, dump.Clients[0].Rejected, "though it takes other things")
}
