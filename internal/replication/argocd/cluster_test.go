package argocd_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/argocd"
)

func berlin() argocd.Cluster {
	return argocd.Cluster{
		Agent: "berlin", Name: "berlin", Server: argocd.ClusterServer("argocd-agent-resource-proxy:9090", "berlin"),
		Access: argocd.ClusterAccess{TLS: argocd.ClusterTLS{
			Certificate: []byte("certificate"), Key: []byte("key"), CAData: []byte("CAs"),
		}},
	}
}

// The names and formats are those that Argo CD reads, and that the documents of argocd-agent show.
func TestClusterSecretIsAsArgoCDReadsIt(t *testing.T) {
	secret := &corev1.Secret{}
	require.NoError(t, berlin().Write(secret))
	require.Equal(t, "cluster-berlin", argocd.ClusterSecretName("berlin"))
	require.Equal(t, map[string]string{
		"argocd.argoproj.io/secret-type": "cluster", "argocd-agent.argoproj-labs.io/agent-name": "berlin",
	}, secret.Labels)
	require.Equal(t, map[string]string{"argocd.argoproj.io/skip-reconcile": "true", "managed-by": "argocd-agent"}, secret.Annotations)
	require.Equal(t, "berlin", string(secret.Data["name"]))
	require.Equal(t, "https://argocd-agent-resource-proxy:9090?agentName=berlin", string(secret.Data["server"]))
	require.JSONEq(t, `{"tlsClientConfig": {"insecure": false, "certData": "Y2VydGlmaWNhdGU=", "keyData": "a2V5", "caData": "Q0Fz"}}`,
		string(secret.Data["config"]))
	require.Len(t, secret.Data, 3)

	read, err := argocd.ReadCluster(secret)
	require.NoError(t, err)
	require.Equal(t, berlin(), read)
	require.Equal(t, read.Server, argocd.ServerOf(secret))
}

// What people have added to a cluster Secret is theirs.
func TestWriteClusterKeepsForeignLabelsAndKeys(t *testing.T) {
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"region": "eu"}, Annotations: map[string]string{"a": "b"}},
		Data:       map[string][]byte{"project": []byte("web"), "server": []byte("old")},
	}
	require.NoError(t, berlin().Write(secret))
	require.Equal(t, "eu", secret.Labels["region"])
	require.Equal(t, "b", secret.Annotations["a"])
	require.Equal(t, "web", string(secret.Data["project"]))
	require.Equal(t, berlin().Server, string(secret.Data["server"]))
}

// An error about credentials shows none of them.
func TestUnreadableClusterSecretIsNotQuotedInError(t *testing.T) {
	wrongKind, err := json.Marshal(map[string]any{"bearerToken": 5})
	require.NoError(t, err)
	for name, text := range map[string]string{"no JSON": `very secret`, "a wrong kind": string(wrongKind), "no object": `"very secret"`} {
		secret := &corev1.Secret{Data: map[string][]byte{"server": []byte("https://x"), "config": []byte(text)}}
		read, err := argocd.ReadCluster(secret)
		require.ErrorContains(t, err, "its key config is not what Argo CD expects", name)
		require.NotContains(t, err.Error(), "secret", name)
		require.NotContains(t, err.Error(), "very", name)
		require.Equal(t, "https://x", read.Server)
	}
}
