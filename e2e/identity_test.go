package e2e_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/pki"
)

// An agent owns the namespace of its name on the hub. So its name must be one that a namespace can have, and not the one
// in which the hub's own things are.
func TestInvalidAgentNamesAreRejected(t *testing.T) {
	t.Parallel()
	for name, reasons := range map[string][]string{
		"Upper":         {`agent name \"Upper\": a lowercase RFC 1123 label must consist of`},
		"under_score":   {`agent name \"under_score\": a lowercase RFC 1123 label must consist of`},
		"a.b":           {`agent name \"a.b\": must not contain dots: rename the agent`},
		"-dash":         {`agent name \"-dash\": a lowercase RFC 1123 label must consist of`},
		lab.Namespace:   {`agent name \"argocd\": it is the name of the hub's own namespace`, "rename the agent"},
		"kube/system=1": {`agent name \"kube/system=1\": a lowercase RFC 1123 label must consist of`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			mark := shared.Principal.Mark()
			agent, err := shared.NewAgent(t.Context(), lab.AgentOptions{
				Spoke: "b", Name: name, Args: []string{"--namespace=nobodys"},
				Certificates: certificates(shared.CA, clientPair(t, shared.CA, name, pki.Validity{})),
			})
			require.NoError(t, err)
			start(t, agent.Start)
			t.Cleanup(func() { stopped(t, agent.Stop) })
			says(t, agent, append(reasons, "Connection to principal failed; retrying")...)
			saysNow(t, shared.Principal, mark, append(reasons, "Refused connection")...)
			requireNotReady(t, agent.HealthURL, "connection: not ready")
		})
	}
}

// The certificate says who an agent is, in the place that the principal looks at.
func TestAgentNameComesFromCertificate(t *testing.T) {
	t.Parallel()
	principal := newPrincipal(t, lab.PrincipalOptions{Args: []string{`--auth=mtls:uri:^spiffe://example\.org/ns/argocd/sa/([^/]+)$`}})
	pair, err := shared.CA.IssueClient(pki.ClientOptions{CommonName: "a", SPIFFEID: "spiffe://example.org/ns/argocd/sa/by-uri"})
	require.NoError(t, err)
	s := startSite(t, "by-uri", lab.AgentOptions{Principal: principal, Certificates: certificates(shared.CA, pair)})
	s.newTwin("mine").create(t).arrives(t)

	nobody := newSite(t, "no-uri", lab.AgentOptions{Principal: principal})
	says(t, nobody.agent, "it has no URI among its alternative names: issue it with one")
}

// Two agents by one name, as after a copy of a cluster: one of them is served, and the other told why it is not.
func TestDuplicateAgentNameNewestWins(t *testing.T) {
	t.Parallel()
	name := unique("namesakes")
	older := startSite(t, name, lab.AgentOptions{}).connected(t)
	older.newTwin("first").create(t).arrives(t)
	newer := startSite(t, name, lab.AgentOptions{Spoke: "a"}).connected(t)
	says(t, older.agent, "Principal serves another agent of this name; retrying",
		"another agent connected by the same name, and the newer one is served", "give one of the two a certificate of its own name")
	newer.newTwin("second").create(t).arrives(t)
	requireNotReady(t, older.agent.HealthURL, "connection: not ready: ", "another agent connected by the same name")
	requireReady(t, newer.agent.HealthURL)

	// When the newer one is gone the older one is served again, without anybody's doing. It stays away for a minute at first.
	mark := older.agent.Mark()
	stopped(t, newer.agent.Stop)
	ctx, cancel := context.WithTimeout(t.Context(), 2*timeout)
	defer cancel()
	require.NoError(t, older.agent.WaitLogFrom(ctx, mark, lab.ConnectedAgentLine))
}

// An agent that is not meant for this hub finds out at once why it cannot be served.
func TestAgentModeMismatchIsReported(t *testing.T) {
	t.Parallel()
	agent, err := shared.NewAgent(t.Context(), lab.AgentOptions{Spoke: "b", Name: "modal", Mode: "dependent"})
	require.NoError(t, err)
	err = agent.Start(t.Context())
	require.ErrorContains(t, err, `--agent-mode or ARGOCD_AGENT_MODE: "dependent" (by flag): want one of managed, autonomous`)
}
