package e2e_test

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/svid/jwtsvid"
	"github.com/spiffe/go-spiffe/v2/workloadapi"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/envoy"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/spire"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/pki"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/presence"
)

// What principals of these tests take JWT-SVIDs for, and how agents are named in them.
const (
	tokenAudience = "argocd-agent-principal"
	tokenAgents   = "spiffe://jwt.test/agent/"
)

// byToken is a principal to which agents come by JWT-SVIDs through load balancers that end TLS.
type byToken struct {
	domain    *spire.Domain
	principal *lab.Principal
	server    *envoy.Identity // the principal's, and the load balancers'
}

func newByToken(t *testing.T) *byToken {
	t.Helper()
	domain := newTrustDomain(t, "jwt.test") // its tokens last a minute
	server, err := shared.ServerIdentity()
	require.NoError(t, err)
	principal, err := shared.NewPrincipal(t.Context(), lab.PrincipalOptions{
		WorkloadAPI: domain.Socket, Certificates: certificates(shared.CA, pki.Pair{Certificate: server.Certificate, Key: server.Key}),
		Args: []string{"--auth=" + tokenAgents + "{agent}", "--jwt-svid-audience=" + tokenAudience},
	})
	require.NoError(t, err)
	register(t, domain, "spiffe://jwt.test/principal", principal.Path())
	start(t, principal.Start)
	t.Cleanup(func() { stopped(t, principal.Stop) })
	return &byToken{domain, principal, server}
}

// balancer starts a load balancer, which sets headers on all requests.
func (b *byToken) balancer(t *testing.T, headers map[string]string) *envoy.Envoy {
	t.Helper()
	return startEnvoy(t, envoy.Options{
		Name: "load-balancer",
		Listener: envoy.Listener{
			Identity: &envoy.Identity{Certificate: b.server.Certificate, Key: b.server.Key}, Anonymous: true, Headers: headers,
		},
		Backend: envoy.Backend{Address: b.principal.Address, Identity: &envoy.Identity{CA: shared.CA.PEM().Certificate}},
	})
}

// join makes a site that connects by a load balancer, and starts its agent.
func (b *byToken) join(t *testing.T, balancer *envoy.Envoy, name, id, creds string) *site {
	t.Helper()
	s := prepareSite(t, name, lab.AgentOptions{
		Principal: b.principal.Behind(balancer), WorkloadAPI: b.domain.Socket, Args: []string{"--creds=" + creds},
		Certificates: &lab.Certificates{CA: shared.CA.PEM().Certificate},
	})
	register(t, b.domain, id, s.agent.Path())
	start(t, s.agent.Start)
	return s
}

// token is a JWT-SVID of SPIRE's for an agent.
func (b *byToken) token(t *testing.T, agent string) string {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	id := tokenAgents + agent
	register(t, b.domain, id, self)
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	client, err := workloadapi.New(ctx, workloadapi.WithAddr(b.domain.Socket))
	require.NoError(t, err)
	defer func() { require.NoError(t, client.Close()) }()
	known := make(chan struct{}, 1)
	watching, stop := context.WithCancel(ctx)
	defer stop()
	go func() { // until it is stopped
		_ = client.WatchX509Context(watching, registered(known))
	}()
	select {
	case <-known:
	case <-ctx.Done():
		require.FailNow(t, "SPIRE does not know the test")
	}
	svid, err := client.FetchJWTSVID(ctx, jwtsvid.Params{Audience: tokenAudience})
	require.NoError(t, err)
	require.Equal(t, id, svid.ID.String())
	return svid.Marshal()
}

// listens reports whether the hub can reach an agent, by the principal's own word.
func (b *byToken) listens(t *testing.T, agent string) bool {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, strings.TrimSuffix(b.principal.MetricsURL, "/metrics")+presence.Path, nil)
	require.NoError(t, err)
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer func() { _ = response.Body.Close() }()
	var report presence.Report
	require.NoError(t, json.NewDecoder(response.Body).Decode(&report))
	return slices.ContainsFunc(report.Agents, func(a presence.Agent) bool { return a.Name == agent && a.Connected })
}

// registered is told when SPIRE has something for a workload.
type registered chan struct{}

// OnX509ContextUpdate is called then.
func (r registered) OnX509ContextUpdate(*workloadapi.X509Context) {
	select {
	case r <- struct{}{}:
	default:
	}
}

// OnX509ContextWatchError is called before: it is asked again.
func (r registered) OnX509ContextWatchError(error) {}

// A token that somebody has overheard opens nothing, and neither does one that has expired: both sides say so.
func TestTokensThatWereShownBeforeOrExpired(t *testing.T) {
	t.Parallel()
	b := newByToken(t)
	victim := unique("overheard")
	token := b.token(t, victim)
	thief := b.balancer(t, map[string]string{"authorization": "Bearer " + token})
	mark := b.principal.Mark()
	s := b.join(t, thief, unique("thief"), tokenAgents+victim, "jwt-svid:"+tokenAudience)
	const again, over = "was shown before: each stream needs one of its own", "expired at"
	saysNow(t, b.principal, mark, "Refused connection", again)
	saysNow(t, s.agent, 0, again)
	saysSlowly(t, b.principal, mark, over)
	saysSlowly(t, s.agent, 0, over)
	for _, log := range []string{b.principal.LogPath(), s.agent.LogPath()} {
		require.NotContains(t, logSince(t, log, 0), token)
	}
}

// No client certificate gets through a load balancer that ends TLS. JWT-SVIDs do, one for each stream.
func TestAgentsByJWTSVIDBehindALoadBalancer(t *testing.T) {
	t.Parallel()
	b := newByToken(t)
	principal, balancer := b.principal, b.balancer(t, nil)
	join := func(name, id, creds string) *site { return b.join(t, balancer, name, id, creds) }
	var sites []*site
	for _, name := range []string{unique("jwt-one"), unique("jwt-two")} {
		s := join(name, tokenAgents+name, "jwt-svid:"+tokenAudience).connected(t)
		s.newTwin("mine").create(t).arrives(t)
		sites = append(sites, s)
	}
	for reason, refused := range map[string]*site{
		"it has to be for the audience": join(unique("jwt-elsewhere"), tokenAgents+"elsewhere", "jwt-svid:other"),
		"is of no form in the hub's":    join(unique("jwt-other"), "spiffe://jwt.test/other/agent", "jwt-svid:"+tokenAudience),
		"brought no verified client":    join(unique("jwt-none"), tokenAgents+"none", "mtls:any"),
	} {
		says(t, refused.agent, reason)
		saysNow(t, principal, 0, "Refused connection", reason)
	}

	// A token lasts a minute, and the agent longer.
	for _, s := range sites {
		mark := s.agent.Mark()
		saysSlowly(t, s.agent, mark, "Certificate renewed; reconnecting")
		saysSlowly(t, s.agent, mark, lab.ConnectedAgentLine)
		s.newTwin("renewed").create(t).arrives(t)
	}
	require.NotContains(t, logSince(t, principal.LogPath(), 0), "eyJ", "tokens are secrets")
}

// While the Workload API is away an agent stays connected to the end of its token, and no longer.
func TestAgentStaysToTheEndOfItsToken(t *testing.T) {
	t.Parallel()
	b := newByToken(t)
	name := unique("jwt-alone")
	s := b.join(t, b.balancer(t, nil), name, tokenAgents+name, "jwt-svid:"+tokenAudience).connected(t)
	require.Eventually(t, func() bool { return b.listens(t, name) }, timeout, 100*time.Millisecond, "its second stream has a token too; no log says that")
	mark := s.agent.Mark()
	stopped(t, b.domain.Agent.Stop)
	const kept, over, renewed = "Failed to get the next JWT-SVID; streams go on", "certificate has expired", "Certificate renewed"
	saysSlowly(t, s.agent, mark, kept)
	saysSlowly(t, s.agent, mark, over)
	log := logSince(t, s.agent.LogPath(), mark)
	require.Less(t, strings.Index(log, kept), strings.Index(log, over))
	require.NotContains(t, log, renewed)
	mark = s.agent.Mark()
	start(t, b.domain.Agent.Start)
	saysSlowly(t, s.agent, mark, lab.ConnectedAgentLine)
	s.newTwin("back").create(t).arrives(t)
}
