package routes_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"github.com/stretchr/testify/require"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/xds/routes"
)

// A name that stands for many is none: whoever asks for it is told nothing, and what others ask for costs as much as before.
func TestNamesForManyHostsAreIgnored(t *testing.T) {
	h := newHub(t, 10)
	require.NoError(t, h.Move(map[string]string{"berlin": "one", "oslo": "one"}))
	c := h.connect(t)
	c.asks(resource.VirtualHostType, "")
	nonce := c.gets().GetNonce()
	c.asks(resource.VirtualHostType, nonce, "*", "agents/*", "agents/*."+domain, "*/berlin", "elsewhere/berlin", "agents/"+strings.Repeat("x", 512))
	c.asks(resource.VirtualHostType, "", host("oslo"))
	answer := c.gets()
	require.Equal(t, map[string]string{"oslo": "principal-one-first"}, c.hosts(answer))
	c.asks(resource.VirtualHostType, answer.GetNonce())
	require.NoError(t, h.Move(map[string]string{"berlin": "two", "oslo": "two"}))
	require.Equal(t, map[string]string{"oslo": "principal-two-first"}, c.hosts(c.gets()))
	require.Zero(t, h.dump(t).Unknown)
}

// A client that asks for more names than there can be agents is cut off, and begins anew, whatever it says that it needs no more.
func TestClientThatAsksForTooMuchIsCutOff(t *testing.T) {
	for name, request := range map[string]func(names []string) *discoveryv3.DeltaDiscoveryRequest{
		"hosts": func(names []string) *discoveryv3.DeltaDiscoveryRequest {
			return &discoveryv3.DeltaDiscoveryRequest{TypeUrl: resource.VirtualHostType, ResourceNamesSubscribe: names}
		},
		"other resources": func(names []string) *discoveryv3.DeltaDiscoveryRequest {
			return &discoveryv3.DeltaDiscoveryRequest{TypeUrl: resource.EndpointType, ResourceNamesSubscribe: names}
		},
		"and unsubscribes what it never asked for": func(names []string) *discoveryv3.DeltaDiscoveryRequest {
			others := make([]string, len(names))
			for i, name := range names {
				others[i] = name + "-other"
			}
			return &discoveryv3.DeltaDiscoveryRequest{TypeUrl: resource.EndpointType, ResourceNamesSubscribe: names, ResourceNamesUnsubscribe: others}
		},
		"groups of resources": func(names []string) *discoveryv3.DeltaDiscoveryRequest {
			for i := range names {
				names[i] += "/*"
			}
			return &discoveryv3.DeltaDiscoveryRequest{TypeUrl: resource.EndpointType, ResourceNamesSubscribe: names}
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHub(t, 10)
			c := h.connect(t)
			for i := range 6 {
				names := make([]string, 10_000)
				for n := range names {
					names[n] = host(fmt.Sprintf("a%d-%d", i, n))
				}
				if err := c.stream.Send(request(names)); err != nil {
					break // it was cut off
				}
			}
			for {
				if _, err := c.stream.Recv(); err != nil {
					require.Equal(t, codes.ResourceExhausted, status.Code(err), err)
					break
				}
			}
			require.Contains(t, h.log.String(), "the client has asked for more than 50000 names")
			require.LessOrEqual(t, h.dump(t).Unknown, 10)
		})
	}
}

// What a client says that it has already counts as what it asks for.
func TestClientThatClaimsTooMuchIsCutOff(t *testing.T) {
	h := newHub(t, 10)
	c := h.connect(t)
	has := make(map[string]string)
	for i := range 50_001 {
		has[fmt.Sprintf("agents/%d", i)] = "v"
	}
	c.sends(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: resource.EndpointType, InitialResourceVersions: has})
	_, err := c.stream.Recv()
	require.Equal(t, codes.ResourceExhausted, status.Code(err), err)
}

// A client of state of the world that refuses what it gets is not sent the same again, at the speed of the wire; but what comes next.
func TestRefusedStateIsNotRepeated(t *testing.T) {
	for name, version := range map[string]string{"the first": "", "with the version of another process": "other.7"} {
		t.Run(name, func(t *testing.T) {
			h := newHub(t, 10)
			stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(h.conn).StreamAggregatedResources(t.Context())
			require.NoError(t, err)
			ask := func(request *discoveryv3.DiscoveryRequest) {
				request.Node, request.VersionInfo = &corev3.Node{Id: "grpc"}, version
				require.NoError(t, stream.Send(request))
			}
			names := []string{"principals"}
			ask(&discoveryv3.DiscoveryRequest{TypeUrl: resource.EndpointType, ResourceNames: names})
			first, err := stream.Recv()
			require.NoError(t, err)
			ask(&discoveryv3.DiscoveryRequest{
				TypeUrl: resource.EndpointType, ResourceNames: names, ResponseNonce: first.GetNonce(),
				ErrorDetail: &rpcstatus.Status{Code: int32(codes.InvalidArgument), Message: "no such thing"},
			})
			ask(&discoveryv3.DiscoveryRequest{TypeUrl: resource.ListenerType, ResourceNames: []string{"principal"}}) // is answered after it
			next, err := stream.Recv()
			require.NoError(t, err)
			require.Equal(t, resource.ListenerType, next.GetTypeUrl())
			require.Equal(t, map[string]string{"ClusterLoadAssignment": "no such thing"}, h.dump(t).Clients[0].Rejected)
			require.NoError(t, h.SetPrincipals(principals("one", "two", "three")))
			next, err = stream.Recv()
			require.NoError(t, err)
			require.Equal(t, resource.EndpointType, next.GetTypeUrl())
		})
	}
}

// dumped is what the dump for people shows.
type dumped struct {
	Principals []struct{ Name, Address string }
	Unknown    int `json:"unknownHosts"`
	Clients    []struct {
		Node     string
		Rejected map[string]string
	}
}

func (h *hub) dump(t *testing.T) (d dumped) {
	t.Helper()
	recorder := httptest.NewRecorder()
	routes.Dump(h.Table, h.server).ServeHTTP(recorder, httptest.NewRequestWithContext(t.Context(), http.MethodGet, routes.DumpPath, nil))
	require.NoError(t, json.Unmarshal(recorder.Body.Bytes(), &d))
	return d
}
