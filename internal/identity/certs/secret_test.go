package certs_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typed "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/kube/secretstest"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/certs"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/certs/secret"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/pki"
)

const (
	tlsSecret = "argocd-agent-client-tls"
	caSecret  = "argocd-agent-ca"
)

// put makes this the data of a Secret.
func put(server *secretstest.Server, name string, data map[string][]byte) {
	server.Set(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: data})
}

func tlsData(pair pki.Pair) map[string][]byte {
	return map[string][]byte{"tls.crt": pair.Certificate, "tls.key": pair.Key}
}

// eachAPIServer runs the test against API servers that stream lists and against ones that do not.
func eachAPIServer(t *testing.T, test func(t *testing.T, server *secretstest.Server)) {
	t.Run("streaming lists", func(t *testing.T) {
		test(t, secretstest.NewWith(t, secretstest.Options{Streaming: true, Allowed: []string{tlsSecret, caSecret}}))
	})
	t.Run("plain lists", func(t *testing.T) {
		test(t, secretstest.NewWith(t, secretstest.Options{Allowed: []string{tlsSecret, caSecret}}))
	})
}

func secretSource(t *testing.T, server *secretstest.Server) *fixture {
	t.Helper()
	return run(t, certs.Options{
		Name:      "agent",
		Pair:      secret.Namespace{Client: server.Client, Name: secretstest.Namespace}.Pair(tlsSecret),
		PairHint:  "create it with: argocd-agentctl pki issue agent",
		Roots:     secret.Namespace{Client: server.Client, Name: secretstest.Namespace}.Roots(caSecret),
		RootsHint: "create it with: argocd-agentctl pki propagate",
	})
}

func TestSecretIsReloadedOnEveryChange(t *testing.T) {
	eachAPIServer(t, func(t *testing.T, server *secretstest.Server) {
		ca := newCA(t, "CA")
		source := secretSource(t, server)
		both := source.log.await(t, "missing") + source.log.await(t, "missing")
		require.Contains(t, both, "Secret argocd/argocd-agent-client-tls: not found: create it with: argocd-agentctl pki issue agent")
		require.Contains(t, both, "Secret argocd/argocd-agent-ca: not found: create it with: argocd-agentctl pki propagate")

		first := clientPair(t, ca, "agent-a", pki.Validity{})
		put(server, "unrelated", tlsData(clientPair(t, ca, "other", pki.Validity{})))
		put(server, caSecret, tlsData(ca.PEM()))
		put(server, tlsSecret, tlsData(first))
		source.ready(t)
		require.Equal(t, serialOf(t, first), source.serial(t))

		second := clientPair(t, ca, "agent-a", pki.Validity{})
		source.after(t, func() { put(server, tlsSecret, tlsData(second)) })
		require.Equal(t, serialOf(t, second), source.serial(t))

		server.Remove(tlsSecret)
		require.Contains(t, source.log.await(t, "keeping the last good ones"), "not found")
		require.Equal(t, serialOf(t, second), source.serial(t))

		third := clientPair(t, ca, "agent-a", pki.Validity{})
		source.after(t, func() { put(server, tlsSecret, tlsData(third)) })
		require.Equal(t, serialOf(t, third), source.serial(t))
	})
}

func TestSecretWatchRestarts(t *testing.T) {
	eachAPIServer(t, func(t *testing.T, server *secretstest.Server) {
		ca := newCA(t, "CA")
		put(server, caSecret, tlsData(ca.PEM()))
		put(server, tlsSecret, tlsData(clientPair(t, ca, "agent-a", pki.Validity{})))
		source := secretSource(t, server).ready(t)

		renewed := clientPair(t, ca, "agent-a", pki.Validity{})
		source.after(t, func() {
			server.CutWatches()
			put(server, tlsSecret, tlsData(renewed))
		})
		require.Equal(t, serialOf(t, renewed), source.serial(t))

		renewed = clientPair(t, ca, "agent-a", pki.Validity{})
		source.after(t, func() {
			put(server, "unrelated", nil)
			server.Forget()
			server.CutWatches()
			put(server, tlsSecret, tlsData(renewed))
		})
		require.Equal(t, serialOf(t, renewed), source.serial(t))
		require.Equal(t, 0.0, source.value(t, reloads, "agent", "failure"))
	})
}

func TestForbiddenSecretIsLoadedOnceAllowed(t *testing.T) {
	eachAPIServer(t, func(t *testing.T, server *secretstest.Server) {
		server.Allow(caSecret, false)
		put(server, caSecret, tlsData(newCA(t, "CA").PEM()))
		source := run(t, certs.Options{
			Roots:     secret.Namespace{Client: server.Client, Name: secretstest.Namespace}.Roots(caSecret),
			RootsHint: "create it with: argocd-agentctl pki propagate",
		})
		line := source.log.await(t, "missing")
		require.Contains(t, line, "Secret argocd/argocd-agent-ca: not allowed")
		require.Contains(t, line, "allow get, list and watch on this Secret")
		require.NotContains(t, line, "pki propagate", "nobody knows yet whether it is missing")
		for range 3 {
			<-server.Refused
		}
		server.Allow(caSecret, true)
		source.ready(t)
		require.Contains(t, source.log.next(t), "Loaded TLS certificates", "the same cause is logged once")
	})
}

func TestInvalidSecretErrorNamesItsKey(t *testing.T) {
	server := secretstest.NewWith(t, secretstest.Options{Streaming: true, Allowed: []string{tlsSecret, caSecret}})
	ca := newCA(t, "CA")
	pair := clientPair(t, ca, "agent-a", pki.Validity{})
	put(server, tlsSecret, map[string][]byte{"tls.crt": pair.Certificate})
	put(server, caSecret, map[string][]byte{"ca.pem": ca.PEM().Certificate})
	source := secretSource(t, server)
	both := source.log.await(t, "missing") + source.log.await(t, "missing")
	require.Contains(t, both, "its key tls.key is missing or empty")
	require.Contains(t, both, "its keys tls.crt and ca.crt are both missing or empty")

	put(server, caSecret, map[string][]byte{"tls.crt": pair.Certificate})
	require.Contains(t, source.log.await(t, "missing"), "which is not a CA, and it has no key ca.crt")
	put(server, caSecret, map[string][]byte{"tls.crt": []byte("rubbish")})
	require.Contains(t, source.log.await(t, "missing"), "its key tls.crt: no certificate in PEM form")
	put(server, caSecret, tlsData(ca.PEM()))
	put(server, tlsSecret, tlsData(pair))
	source.ready(t)
}

func TestCAIsReadFromTLSCrtOrCACrt(t *testing.T) {
	ca, issuer := newCA(t, "CA"), newCA(t, "issuer")
	leaf := clientPair(t, ca, "agent-a", pki.Validity{})
	for name, data := range map[string]map[string][]byte{
		"the CA's own Secret":             tlsData(ca.PEM()),
		"its certificate alone as ca.crt": {"ca.crt": ca.PEM().Certificate},
		"a leaf's Secret with its ca.crt": {"tls.crt": leaf.Certificate, "tls.key": leaf.Key, "ca.crt": ca.PEM().Certificate},
		"a CA's Secret and its issuer":    {"tls.crt": ca.PEM().Certificate, "ca.crt": issuer.PEM().Certificate},
	} {
		t.Run(name, func(t *testing.T) {
			server := secretstest.NewWith(t, secretstest.Options{Streaming: true, Allowed: []string{caSecret}})
			put(server, caSecret, data)
			source := run(t, certs.Options{Roots: secret.Namespace{Client: server.Client, Name: secretstest.Namespace}.Roots(caSecret)}).ready(t)
			material, err := source.Current()
			require.NoError(t, err)
			require.Len(t, material.CAs, 1)
			require.Equal(t, "CN=CA", material.CAs[0].Subject.String())
		})
	}
}

func TestUnreachableAPIServerIsRetried(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	address := server.URL
	server.Close()
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	client, err := typed.NewForConfigAndClient(&rest.Config{Host: address}, &http.Client{Transport: transport})
	require.NoError(t, err)
	source := run(t, certs.Options{Pair: secret.Namespace{Client: client, Name: secretstest.Namespace}.Pair(tlsSecret), PairHint: "issue it"})
	line := source.log.await(t, "missing")
	require.Contains(t, line, "unreachable")
	require.NotContains(t, line, "issue it", "nobody knows yet whether it is missing")

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorContains(t, source.Wait(ctx), "unreachable")
}
