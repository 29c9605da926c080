package contract_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"github.com/argoproj/argo-cd/v3/util/db"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/argocd"
)

func aCluster() *rapid.Generator[argocd.Cluster] {
	return rapid.Custom(func(t *rapid.T) argocd.Cluster {
		name := anAgent().Draw(t, "agent")
		pem := rapid.SliceOf(rapid.Byte())
		return argocd.Cluster{
			Agent: name, Name: name, Server: argocd.ClusterServer(proxy, name),
			Access: argocd.ClusterAccess{BearerToken: rapid.String().Draw(t, "token"), TLS: argocd.ClusterTLS{
				Insecure: rapid.Bool().Draw(t, "insecure"), Certificate: pem.Draw(t, "certificate"), Key: pem.Draw(t, "key"), CAData: pem.Draw(t, "CAs"),
			}},
		}
	})
}

// sameCluster requires that Argo CD reads from a cluster Secret what ours does.
func sameCluster(t *rapid.T, secret *corev1.Secret) {
	theirs, err := db.SecretToCluster(secret)
	ours, ourErr := argocd.ReadCluster(secret)
	if err != nil {
		require.Error(t, ourErr)
		return
	}
	require.NoError(t, ourErr)
	require.Equal(t, theirs.Name, ours.Name)
	require.Equal(t, theirs.Server, ours.Server)
	require.Equal(t, theirs.Server, argocd.ServerOf(secret))
	require.Equal(t, theirs.Config.BearerToken, ours.Access.BearerToken)
	require.Equal(t, theirs.Config.Insecure, ours.Access.TLS.Insecure)
	require.Equal(t, string(theirs.Config.CertData), string(ours.Access.TLS.Certificate))
	require.Equal(t, string(theirs.Config.KeyData), string(ours.Access.TLS.Key))
	require.Equal(t, string(theirs.Config.CAData), string(ours.Access.TLS.CAData))
}

func TestClusterSecretIsReadTheSameByArgoCD(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		secret := &corev1.Secret{}
		require.NoError(t, aCluster().Draw(t, "cluster").Write(secret))
		sameCluster(t, secret)
	})
}

// So are those that somebody has written by hand.
func TestClusterSecretOfAUserIsReadTheSameByArgoCD(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		sameCluster(t, &corev1.Secret{Data: map[string][]byte{
			"name":   []byte(aName().Draw(t, "name")),
			"server": []byte(rapid.StringMatching(`(https://proxy:9090(/{0,2}|/\?agentName=b/?))?`).Draw(t, "server")),
			"config": []byte(rapid.SampledFrom([]string{
				``, `{}`, `null`, `{"tlsClientConfig":null}`, `{"BearerToken":"x"}`, `{"bearerToken":"x","unknown":1}`, `x`, `[]`, `{"bearerToken":1}`,
				`{"tlsClientConfig":{"insecure":true,"caData":"YQ=="}}`, `{"tlsClientConfig":{"caData":"?"}}`,
			}).Draw(t, "config")),
		}})
	})
}
