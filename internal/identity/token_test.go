package identity_test

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity"
)

// tokens takes "good" for that of berlin.
type tokens struct{}

func (tokens) Prove(token string) (identity.Proof, error) {
	if token != "good" {
		return identity.Proof{}, errors.New("not that one")
	}
	return identity.Proof{URIs: []string{berlin}, NotAfter: time.Now().Add(time.Minute)}, nil
}

func (tokens) VerifyToken(string) error { return nil }

func TestTokenProvesOnlyWhatNothingElseDoes(t *testing.T) {
	t.Parallel()
	const template = "spiffe://spoke.test/ns/argocd/sa/argocd-agent/agent/{agent}"
	bare := &tls.ConnectionState{HandshakeComplete: true}
	for name, c := range map[string]struct {
		state    *tls.ConnectionState
		address  net.Addr
		metadata []string
		none     bool // the principal takes no tokens
		agent    identity.Agent
		refusal  string
	}{
		"by a load balancer":            {bare, remote(), []string{"authorization", "Bearer good"}, false, "berlin", ""},
		"by a sidecar":                  {nil, local(), []string{"authorization", "bearer good"}, false, "berlin", ""},
		"in clear text":                 {nil, remote(), []string{"authorization", "Bearer good"}, false, "", "in clear text"},
		"bad token":                     {bare, remote(), []string{"authorization", "Bearer bad"}, false, "", "not that one"},
		"two tokens":                    {bare, remote(), []string{"authorization", "Bearer good", "authorization", "Bearer good"}, false, "", "no verified client certificate"},
		"another scheme":                {bare, remote(), []string{"authorization", "Basic good"}, false, "", "no verified client certificate"},
		"tokens are not taken":          {bare, remote(), []string{"authorization", "Bearer good"}, true, "", "no verified client certificate"},
		"a certificate wins":            {secured(t, paris), remote(), []string{"authorization", "Bearer good"}, false, "paris", ""},
		"a header of the sidecar's too": {nil, local(), []string{"authorization", "Bearer good", "x-forwarded-client-cert", "URI=" + paris}, false, "paris", ""},
	} {
		t.Run(name, func(t *testing.T) {
			options := identity.Options{Auth: template, Tokens: tokens{}, Proxies: identity.Proxies{Local: true}}
			if c.none {
				options.Tokens = nil
			}
			authenticator, err := identity.New(options)
			require.NoError(t, err)
			from := &peer.Peer{Addr: c.address}
			if c.state != nil {
				from.AuthInfo = credentials.TLSInfo{State: *c.state}
			}
			ctx := metadata.NewIncomingContext(peer.NewContext(context.Background(), from), metadata.Pairs(c.metadata...))
			found, err := authenticator.Authenticate(ctx)
			if c.refusal != "" {
				require.ErrorIs(t, err, identity.ErrUnauthenticated)
				require.ErrorContains(t, err, c.refusal)
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.agent, found.Agent)
		})
	}
}
