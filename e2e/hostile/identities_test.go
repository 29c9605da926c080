package hostile_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	tunnelv1 "github.com/argocd-agent-mesh/argocd-agent-mesh/api/tunnel/v1"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/pki"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/wire"
)

// requireTurnedAway checks that the principal wants no session with whoever has such a certificate and says such a hello.
func requireTurnedAway(t *testing.T, s *stage, certificate pki.ClientOptions, hello wire.Hello, code codes.Code, texts ...string) {
	t.Helper()
	conn, err := s.dial(certificate)
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close()) }()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	_, err = connect(ctx, conn, hello)
	require.Equal(t, code, status.Code(err), "%v", err)
	for _, text := range texts {
		require.ErrorContains(t, err, text)
	}
}

// identityLies are about who somebody is.
func identityLies() []lie {
	return []lie{
		{
			who: agent, about: "hello", sends: "another mode than the hub pins, or autonomous where nothing is pinned",
			happens: "the stream ends with `FailedPrecondition`, and says how to pin the mode",
			try: func(t *testing.T, s *stage) {
				t.Helper()
				requireTurnedAway(t, s, pki.ClientOptions{CommonName: bystander}, agentHello("autonomous"), codes.FailedPrecondition, "managed")
			},
		},
		{
			who: agent, about: "hello", sends: "a label selector of 1 MB",
			happens: "the stream ends; nothing of it gets into a log or a status",
			try: func(t *testing.T, s *stage) {
				t.Helper()
				hello := agentHello("managed")
				hello.Selector = strings.Repeat("x", 1<<20)
				conn, err := s.dial(pki.ClientOptions{CommonName: bystander})
				require.NoError(t, err)
				defer func() { require.NoError(t, conn.Close()) }()
				_, err = connect(t.Context(), conn, hello)
				require.Error(t, err)
				require.Less(t, len(err.Error()), 8<<10)
			},
		},
		{
			who: stranger, about: "identity", sends: "a certificate for an agent that the hub has never heard of",
			happens: "the stream ends, and says how to create the agent; nothing is deleted on its spoke",
			try: func(t *testing.T, s *stage) {
				t.Helper()
				requireTurnedAway(t, s, pki.ClientOptions{CommonName: "nobody"}, agentHello("managed"), codes.FailedPrecondition, "argocd-agentctl agent create nobody")
			},
		},
		{
			who: stranger, about: "identity", sends: "a certificate named `in-cluster`, or as the hub's own namespace",
			happens: "the stream ends: those names mean the hub's own cluster",
			try: func(t *testing.T, s *stage) {
				t.Helper()
				for _, name := range []string{"in-cluster", "argocd"} {
					requireTurnedAway(t, s, pki.ClientOptions{CommonName: name}, agentHello("autonomous"), codes.Unauthenticated, name)
				}
			},
		},
		{
			who: agent, about: "Relay", sends: "a call to the service that only the hub's components may call, to reach another agent",
			happens: "`Unauthenticated`: it is no component of the hub",
			try: func(t *testing.T, s *stage) {
				t.Helper()
				requireNoRelay(t, s, pki.ClientOptions{CommonName: managedLiar})
			},
		},
		{
			who: agent, about: "Tunnel.Accept", sends: "the id of a dial that was sent to another agent, or to none",
			happens: "`NotFound`: an id is good once, and for one agent",
			by:      "principal/relay.TestConnectionIsAcceptedOnceByItsAgent",
		},
	}
}

// requireNoRelay checks that whoever has such a certificate may not reach agents.
func requireNoRelay(t *testing.T, s *stage, certificate pki.ClientOptions) {
	t.Helper()
	conn, err := s.dial(certificate)
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close()) }()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	stream, err := tunnelv1.NewRelayClient(conn).Dial(metadata.AppendToOutgoingContext(ctx, "tunnel-agent", bystander, "tunnel-target", "kube"))
	require.NoError(t, err)
	_, err = stream.Recv()
	require.Equal(t, codes.Unauthenticated, status.Code(err), "%v", err)
}
