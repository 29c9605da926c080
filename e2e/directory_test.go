package e2e_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/cluster"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/pki"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/directory"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/directory/directorytest"
)

// watchDirectory watches the directory of a principal, as a component does, until the test is over.
func watchDirectory(t *testing.T, principal *lab.Principal) *directory.Directory {
	t.Helper()
	pair, err := shared.CA.IssueClient(pki.ClientOptions{CommonName: "argocd-agent-redisproxy"})
	require.NoError(t, err)
	certificate, err := pair.TLS()
	require.NoError(t, err)
	roots := x509.NewCertPool()
	require.True(t, roots.AppendCertsFromPEM(shared.CA.PEM().Certificate))
	conn, err := grpc.NewClient(principal.Address, grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{
		Certificates: []tls.Certificate{certificate}, RootCAs: roots, MinVersion: tls.VersionTLS13,
	})))
	require.NoError(t, err)
	r := directory.New(conn, nil, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { r.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait(); require.NoError(t, conn.Close()) })
	return r
}

// awaitDirectory waits until something is true of the directory.
func awaitDirectory(t *testing.T, known *directory.Directory, is func() bool) {
	t.Helper()
	directorytest.Until(t, known, timeout, is)
}

// The hub knows an agent by its cluster Secret, though it may never have connected, and for as long as that is there.
func TestDirectoryListsAgentsFromClusterSecrets(t *testing.T) {
	t.Parallel()
	name := unique("never-there")
	known := watchDirectory(t, shared.Principal)
	until := func(is func() bool) { t.Helper(); awaitDirectory(t, known, is) }
	answers := func(want string) {
		t.Helper()
		out, err := newKubectl(t, lab.AllAgents, "/agents/"+name, "default").try(t, "", "get", "--raw=/version")
		require.Error(t, err)
		require.Contains(t, out, want)
	}
	until(func() bool { return known.Ready() == nil })
	answers("no such agent")
	require.NoError(t, shared.RegisterAgent(t.Context(), name))
	until(func() bool { a, ok := known.Agent(name); return ok && !a.Connected && a.Server != "" })
	answers("has not connected")
	secrets := schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
	side{shared.Hub, cluster.Selection{Resource: secrets, Namespace: lab.Namespace, Name: "cluster-" + name}}.delete(t)
	until(func() bool { _, ok := known.Agent(name); return !ok })
	answers("no such agent")
}
