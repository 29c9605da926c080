package e2e_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/envoy"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/pki"
)

// routing are the principals of a hub, xds, and a kubeproxy with an Envoy beside it.
type routing struct {
	principals []*lab.Principal
	servers    []*lab.XDS
	sidecar    *envoy.Envoy
	proxy      *lab.Proxy
}

func newRouting(t *testing.T, principals, servers int, args ...string) *routing {
	t.Helper()
	r := &routing{}
	r.principals, _ = newReplicas(t, principals, args...)
	for range servers {
		r.servers = append(r.servers, newXDS(t, r.principals))
	}
	var err error
	r.sidecar, err = shared.StartSidecar(t.Context(), "kubeproxy", nil, r.servers...)
	require.NoError(t, err)
	t.Cleanup(func() { stopped(t, r.sidecar.Stop) })
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(r.report())
		}
	})
	r.proxy = newKubeproxy(t, lab.ProxyOptions{
		Principal: r.principals[0].Behind(r.sidecar), Args: []string{"--principal-insecure-plaintext", "--agent-domain=agents.argocd-agent"},
	})
	return r
}

// report is what the sidecar and xds say of themselves: why what goes by them fails is in no log.
func (r *routing) report() string {
	pages := []string{r.sidecar.Admin() + "/init_dump", r.sidecar.Admin() + "/clusters", r.sidecar.Admin() + "/stats?usedonly&filter=(ds[.]|no_route|no_cluster|http2)"}
	for _, server := range r.servers {
		pages = append(pages, strings.TrimSuffix(server.MetricsURL, "/metrics")+"/routes")
	}
	var all strings.Builder
	for _, page := range pages {
		_, text, err := readURL(context.Background(), page) // the test's own context has ended
		fmt.Fprintf(&all, "%s: %v\n%s\n", page, err, text)
	}
	return all.String()
}

// newXDS starts an xds for these principals.
func newXDS(t *testing.T, principals []*lab.Principal, args ...string) *lab.XDS {
	t.Helper()
	addresses := make([]string, len(principals))
	for i, p := range principals {
		addresses[i] = p.Address
	}
	server, err := shared.NewXDS(t.Context(), addresses, args...)
	require.NoError(t, err)
	start(t, server.Start)
	t.Cleanup(func() { stopped(t, server.Stop) })
	says(t, server, "Listening for xDS clients")
	return server
}

func newKubeproxy(t *testing.T, options lab.ProxyOptions) *lab.Proxy {
	t.Helper()
	return newProxy(t, shared.NewKubeproxy, options)
}

func newRedisproxy(t *testing.T, options lab.ProxyOptions) *lab.Proxy {
	t.Helper()
	return newProxy(t, shared.NewRedisproxy, options)
}

// newProxy starts a kubeproxy or a redisproxy.
func newProxy(t *testing.T, prepare func(context.Context, lab.ProxyOptions) (*lab.Proxy, error), options lab.ProxyOptions) *lab.Proxy {
	t.Helper()
	proxy, err := prepare(t.Context(), options)
	require.NoError(t, err)
	start(t, proxy.Start)
	t.Cleanup(func() { stopped(t, proxy.Stop) })
	return proxy
}

// routesOf is the dump of an xds.
func routesOf(t *testing.T, server *lab.XDS) (dump struct {
	Principals []struct{ ID, Name string }
	Agents     map[string]string
},
) {
	t.Helper()
	_, text := get(t, strings.TrimSuffix(server.MetricsURL, "/metrics")+"/routes")
	require.NoError(t, json.Unmarshal([]byte(text), &dump))
	return dump
}

// leads waits until the sidecar sends what is for an agent to the principal of that name.
func (r *routing) leads(t *testing.T, agent, principal string) {
	t.Helper()
	require.Eventually(t, func() bool {
		var id string
		for _, p := range routesOf(t, r.servers[0]).Principals {
			if p.Name == principal {
				id = p.ID
			}
		}
		_, config := get(t, r.sidecar.Admin()+"/config_dump?resource=dynamic_route_configs")
		_, host, found := strings.Cut(config, `"name": "agents/`+agent+`.agents.argocd-agent"`)
		host, _, _ = strings.Cut(host, `"name": "agents/`)
		return found && strings.Contains(host, `"principal-`+id+`-first"`)
	}, timeout, 20*time.Millisecond)
}

// forwarded is how many calls principals have forwarded to each other.
func (r *routing) forwarded(t *testing.T) (sum float64) {
	t.Helper()
	for _, p := range r.principals {
		_, page := get(t, p.MetricsURL)
		for line := range strings.Lines(page) {
			if !strings.HasPrefix(line, "argocd_principal_tunnel_forwarded_total{") {
				continue
			}
			n, err := strconv.ParseFloat(strings.TrimSpace(line[strings.LastIndexByte(line, ' '):]), 64)
			require.NoError(t, err)
			sum += n
		}
	}
	return sum
}

// An Envoy beside kubeproxy sends what is for an agent to the principal that holds the agent's tunnel, wherever that moves.
func TestEnvoyFollowsAgentsByXDS(t *testing.T) {
	t.Parallel()
	r := newRouting(t, 3, 2)
	s := newSite(t, "routed", lab.AgentOptions{Principal: r.principals[1]}).connected(t)
	argo := newCaller(t, r.proxy, lab.AllAgents)
	require.Eventually(t, func() bool { return routesOf(t, r.servers[0]).Agents[s.name] == "replica-1" }, timeout, 20*time.Millisecond)
	status, body := argo.asks(t, "/agents/"+s.name+"/version", "")
	require.Equal(t, http.StatusOK, status, body)
	r.leads(t, s.name, "replica-1")
	require.Zero(t, r.forwarded(t))
	for round, to := range []int{2, 0, 1} {
		s.moves(t, r.principals[to])
		r.leads(t, s.name, "replica-"+string(rune('0'+to)))
		before := r.forwarded(t)
		status, body := argo.asks(t, "/agents/"+s.name+"/version", "")
		require.Equal(t, http.StatusOK, status, "round %d: %s", round, body)
		require.Equal(t, before, r.forwarded(t), "round %d: the principal was the right one", round)
	}
	// Nobody has such an agent, and kubeproxy asks nobody; what Envoy is asked in spite of that is answered at once.
	status, body = argo.asks(t, "/agents/"+unique("nowhere")+"/version", "")
	require.Equal(t, http.StatusNotFound, status, body)
}

// gRPC without a proxy asks principals which of them holds an agent's tunnel, on one channel for all agents.
func TestGRPCFollowsAgentsByXDS(t *testing.T) {
	t.Parallel()
	r := &routing{}
	r.principals, _ = newReplicas(t, 3)
	server := newXDS(t, r.principals)
	proxy := newKubeproxy(t, lab.ProxyOptions{
		Principal: r.principals[0], Args: []string{"--principal-address=xds:///argocd-agent-principal"}, Env: bootstrapped(t, server),
	})
	says(t, server, "Client connected")
	s := newSite(t, "looked-up", lab.AgentOptions{Principal: r.principals[1]}).connected(t)
	argo := newCaller(t, proxy, lab.AllAgents)
	for range 3 {
		status, body := argo.asks(t, "/agents/"+s.name+"/version", "")
		require.Equal(t, http.StatusOK, status, body)
	}
	require.Zero(t, r.forwarded(t))
	s.moves(t, r.principals[2])
	require.Eventually(t, func() bool { // the first looks up again what is out of date
		before := r.forwarded(t)
		status, body := argo.asks(t, "/agents/"+s.name+"/version", "")
		require.Equal(t, http.StatusOK, status, body)
		s.agent.Principal.Reset() // the next has to dial
		says(t, s.agent, lab.ConnectedAgentLine)
		return r.forwarded(t) == before
	}, timeout, time.Second)
}

// bootstrapped writes gRPC's bootstrap file for an xds, and returns the environment of a program that uses it.
func bootstrapped(t *testing.T, server *lab.XDS) []string {
	t.Helper()
	path, err := shared.Host.Write("bootstrap/"+t.Name()+".json", fmt.Appendf(nil, `{
		"xds_servers": [{
			"server_uri": %q, "channel_creds": [{"type": "argocd_agent"}], "server_features": ["xds_v3", "ignore_resource_deletion"]
		}],
		"node": {"id": %q}
	}`, server.Address, t.Name()))
	require.NoError(t, err)
	return []string{"GRPC_XDS_BOOTSTRAP=" + path}
}

// Who has the address that a principal had, and a certificate of the same CA, is no principal.
func TestXDSLeadsNobodyToAnImpostor(t *testing.T) {
	t.Parallel()
	principal := newPrincipal(t, lab.PrincipalOptions{})
	cable, err := shared.Host.Link(t.Context(), t.Name(), principal.Address)
	require.NoError(t, err)
	at := *principal
	at.Address = cable.Address()
	server := newXDS(t, []*lab.Principal{&at})
	proxy := newKubeproxy(t, lab.ProxyOptions{
		Principal: principal, Args: []string{"--principal-address=xds:///argocd-agent-principal"}, Env: bootstrapped(t, server),
	})
	sidecar, err := shared.StartSidecar(t.Context(), "kubeproxy", nil, server)
	require.NoError(t, err)
	t.Cleanup(func() { stopped(t, sidecar.Stop) })
	beside := newKubeproxy(t, lab.ProxyOptions{
		Principal: principal.Behind(sidecar), Args: []string{"--principal-insecure-plaintext", "--agent-domain=agents.argocd-agent"},
	})
	s := newSite(t, "lured", lab.AgentOptions{Principal: principal}).connected(t)
	for _, p := range []*lab.Proxy{proxy, beside} {
		status, body := newCaller(t, p, lab.AllAgents).asks(t, "/agents/"+s.name+"/version", "")
		require.Equal(t, http.StatusOK, status, body)
	}
	pair, err := shared.CA.IssueServer(pki.ServerOptions{CommonName: "impostor", Names: []string{"impostor"}, Addresses: []net.IP{net.IPv4(127, 0, 0, 1)}})
	require.NoError(t, err)
	impostor := newPrincipal(t, lab.PrincipalOptions{
		Certificates: &lab.Certificates{CA: shared.CA.PEM().Certificate, Certificate: pair.Certificate, Key: pair.Key},
	})
	cable.Move(impostor.Address)
	cable.Reset()
	says(t, server, "certificate is valid for impostor, not argocd-agent-principal")
	for _, p := range []*lab.Proxy{proxy, beside} {
		require.Eventually(t, func() bool {
			status, _ := newCaller(t, p, lab.AllAgents).asks(t, "/agents/"+s.name+"/version", "")
			return status == http.StatusServiceUnavailable || status == http.StatusBadGateway
		}, timeout, 100*time.Millisecond)
	}
	says(t, proxy, "certificate is valid for impostor, not argocd-agent-principal")
}

func TestXDSServesItsClientsOnly(t *testing.T) {
	t.Parallel()
	server := newXDS(t, []*lab.Principal{shared.Principal})
	pair, err := shared.CA.IssueClient(pki.ClientOptions{CommonName: "berlin"})
	require.NoError(t, err)
	certificate, err := pair.TLS()
	require.NoError(t, err)
	pool := x509.NewCertPool()
	pool.AddCert(shared.CA.Certificate())
	conn, err := grpc.NewClient(server.Address, grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{
		Certificates: []tls.Certificate{certificate}, RootCAs: pool, MinVersion: tls.VersionTLS13,
	})))
	require.NoError(t, err)
	defer conn.Close()
	stream, err := conn.NewStream(t.Context(), &grpc.StreamDesc{ServerStreams: true, ClientStreams: true},
		"/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources")
	require.NoError(t, err)
	require.Equal(t, codes.Unauthenticated, status.Code(stream.RecvMsg(&emptypb.Empty{})))
	says(t, server, "Refused connection")
}

// An Envoy whose bootstrap lacks what xds relies on says so to xds, which logs and counts it. Others are served as before.
func TestRejectionByEnvoyIsTold(t *testing.T) {
	t.Parallel()
	r := newRouting(t, 1, 1)
	wrong, err := shared.StartSidecar(t.Context(), "kubeproxy", map[string]string{"- name: argocd-agent-ca": "- name: another-ca", "{ name: argocd-agent-ca }": "{ name: another-ca }"}, r.servers[0])
	require.NoError(t, err)
	t.Cleanup(func() { stopped(t, wrong.Stop) })
	says(t, r.servers[0], "Client rejected resources (NACK)", "argocd-agent-ca")
	shows(t, r.servers[0].MetricsURL, `argocd_xds_rejections_total{type="Cluster"} `)
	s := newSite(t, "served", lab.AgentOptions{Principal: r.principals[0]}).connected(t)
	status, body := newCaller(t, r.proxy, lab.AllAgents).asks(t, "/agents/"+s.name+"/version", "")
	require.Equal(t, http.StatusOK, status, body)
}
