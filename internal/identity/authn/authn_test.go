package authn_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/authn"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/identitytest"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/pki"
)

const component = "argocd-agent-kubeproxy"

// open runs an authenticator until the test is over.
func open(t *testing.T) (*authn.Authenticator, *identitytest.Trust, *bytes.Buffer) {
	t.Helper()
	identify, err := identity.New(identity.Options{Auth: identity.DefaultAuth, Components: identity.Components{component: {"kube"}}})
	require.NoError(t, err)
	s, log := &identitytest.Trust{}, &bytes.Buffer{}
	a := authn.New(authn.Options{Identify: identify, Trust: s, Logger: slog.New(slog.NewTextHandler(log, nil))})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { a.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	return a, s, log
}

// stream returns the context of a stream whose caller has a certificate of that name.
func stream(t *testing.T, name string) context.Context {
	t.Helper()
	ca, err := pki.NewCA(pki.CAOptions{CommonName: "test"})
	require.NoError(t, err)
	pair, err := ca.IssueClient(pki.ClientOptions{CommonName: name})
	require.NoError(t, err)
	certificate, err := pair.TLS()
	require.NoError(t, err)
	leaf := certificate.Leaf
	return peer.NewContext(t.Context(), &peer.Peer{
		Addr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)},
		AuthInfo: credentials.TLSInfo{State: tls.ConnectionState{
			PeerCertificates: []*x509.Certificate{leaf}, VerifiedChains: [][]*x509.Certificate{{leaf}},
		}},
	})
}

func TestAgentIsNoComponentAndComponentNoAgent(t *testing.T) {
	a, _, log := open(t)
	_, who, err := a.Agent(stream(t, "berlin"))
	require.NoError(t, err)
	require.EqualValues(t, "berlin", who.Agent)
	who.End()
	_, who, err = a.Component(stream(t, component))
	require.NoError(t, err)
	require.Equal(t, component, who.Component)
	who.End()

	_, _, err = a.Agent(stream(t, component))
	require.Equal(t, codes.Unauthenticated, status.Code(err))
	require.ErrorContains(t, err, "is no agent")
	_, _, err = a.Component(stream(t, "berlin"))
	require.Equal(t, codes.Unauthenticated, status.Code(err))
	require.ErrorContains(t, err, "--hub-components")
	require.Equal(t, 2, strings.Count(log.String(), "Refused connection"))
}

func TestComponentIsBoundToItsTargets(t *testing.T) {
	a, _, log := open(t)
	_, who, err := a.Component(stream(t, component))
	require.NoError(t, err)
	defer who.End()
	require.NoError(t, a.MayDial(who, "kube"))
	for range 3 {
		err = a.MayDial(who, "redis")
		require.Equal(t, codes.PermissionDenied, status.Code(err))
	}
	require.ErrorContains(t, err, "may dial kube at agents, and not redis")
	require.Contains(t, log.String(), "component="+component)
}

func TestRevokedCertificateEndsStreams(t *testing.T) {
	a, s, _ := open(t)
	ctx, who, err := a.Agent(stream(t, "berlin"))
	require.NoError(t, err)
	defer who.End()
	s.Change(nil)
	require.NoError(t, ctx.Err())
	s.Change(errors.New("blocked"))
	<-ctx.Done()
	err = authn.Status(context.Cause(ctx))
	require.Equal(t, codes.Unauthenticated, status.Code(err))
	require.ErrorContains(t, err, "the client's certificate is no longer trusted: blocked")
	_, _, err = a.Agent(stream(t, "berlin"))
	require.ErrorContains(t, err, "no longer trusted")
}

// One agent's streams do not count for others.
func TestStreamsPerAgentAreLimited(t *testing.T) {
	a, _, _ := open(t)
	berlin := stream(t, "berlin")
	var ends []func()
	for range authn.MaxStreams {
		_, who, err := a.Agent(berlin)
		require.NoError(t, err)
		ends = append(ends, who.End)
	}
	_, _, err := a.Agent(berlin)
	require.Equal(t, codes.ResourceExhausted, status.Code(err))
	_, who, err := a.Agent(stream(t, "paris"))
	require.NoError(t, err)
	who.End()
	for _, end := range ends {
		end()
	}
	_, who, err = a.Agent(berlin)
	require.NoError(t, err)
	who.End()
}

// An agent that is refused comes again every half minute, over several streams.
func TestRefusalsThatRepeatAreLoggedOnce(t *testing.T) {
	a, s, log := open(t)
	berlin := stream(t, "berlin")
	s.Change(errors.New("blocked"))
	for range 5 {
		_, _, err := a.Agent(berlin)
		require.ErrorContains(t, err, "blocked")
	}
	_, _, err := a.Agent(stream(t, "paris"))
	require.Error(t, err)
	require.Equal(t, 2, strings.Count(log.String(), "Refused connection"))

	s.Change(errors.New("expired"))
	_, _, err = a.Agent(berlin)
	require.Error(t, err)
	require.Equal(t, 3, strings.Count(log.String(), "Refused connection"))
	s.Change(nil)
	_, who, err := a.Agent(berlin)
	require.NoError(t, err)
	a.Admitted(who.Name())
	who.End()
	s.Change(errors.New("expired"))
	_, _, err = a.Agent(berlin)
	require.Error(t, err)
	require.Equal(t, 4, strings.Count(log.String(), "Refused connection"))
}

// It is not known yet who is blocked.
func TestNobodyIsAdmittedBeforeThatIsPossible(t *testing.T) {
	identify, err := identity.New(identity.Options{Auth: identity.DefaultAuth})
	require.NoError(t, err)
	ready := errors.New("the blocklist is not known")
	a := authn.New(authn.Options{
		Identify: identify, Trust: &identitytest.Trust{}, Logger: slog.New(slog.DiscardHandler),
		Ready: func(context.Context) error { return ready },
	})
	_, _, err = a.Agent(stream(t, "berlin"))
	require.Equal(t, codes.Unavailable, status.Code(err))
	require.ErrorContains(t, err, "the blocklist is not known")
	ready = nil
	_, who, err := a.Agent(stream(t, "berlin"))
	require.NoError(t, err)
	who.End()
}
