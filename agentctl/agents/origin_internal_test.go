package agents

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/cluster"
)

// A flag wins over its variable, and that over the ConfigMap, as in the programs; and files over the Workload API.
func TestOriginIsThatOfTheProgramsSettings(t *testing.T) {
	t.Parallel()
	const api = "unix:///run/spire/sockets/agent.sock"
	for name, c := range map[string]struct {
		params    map[string]string
		variables map[string]string
		words     []string
		want      Origin
	}{
		"nothing said":          {want: Origin{}},
		"Workload API, by flag": {words: []string{"--spiffe-endpoint-socket", api}, want: Origin{Elsewhere: "the SPIFFE Workload API at " + api}},
		"Workload API, by variable": {
			variables: map[string]string{"SPIFFE_ENDPOINT_SOCKET": api}, params: map[string]string{"agent.principal.spiffe-id": "spiffe://hub.example/principal"},
			want: Origin{Elsewhere: "the SPIFFE Workload API at " + api, ServerID: "spiffe://hub.example/principal"},
		},
		"files beside it": {
			variables: map[string]string{"SPIFFE_ENDPOINT_SOCKET": api}, params: map[string]string{"agent.tls.client.cert-path": "/tls/tls.crt"},
			want: Origin{File: "/tls/tls.crt"},
		},
		"sidecar":               {params: map[string]string{"agent.tls.insecure-plaintext": "true"}, want: Origin{Elsewhere: "its sidecar, which speaks mutual TLS for it"}},
		"no sidecar, by a flag": {params: map[string]string{"agent.tls.insecure-plaintext": "true"}, words: []string{"--insecure-plaintext=false"}},
		"JWT-SVIDs": {
			variables: map[string]string{"SPIFFE_ENDPOINT_SOCKET": api}, params: map[string]string{"agent.creds": "jwt-svid:hub"},
			want: Origin{Elsewhere: "JWT-SVIDs of the SPIFFE Workload API"},
		},
	} {
		container := corev1.Container{Args: c.words}
		for variable, value := range c.variables {
			container.Env = append(container.Env, corev1.EnvVar{Name: variable, Value: value})
		}
		deployed := &cluster.Workload{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{container}}}}
		require.Equal(t, c.want, told{params: c.params, workload: deployed}.origin(settingsOfAgent()), name)
	}
	require.Equal(t, Origin{}, told{}.origin(settingsOfAgent()), "no Deployment")
}
