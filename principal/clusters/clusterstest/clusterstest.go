// Package clusterstest has an API server for tests whose Secrets are those of clusters.
package clusterstest

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/kube/secretstest"
)

// Server has the Secrets of one namespace.
type Server struct{ *secretstest.Server }

// New returns a server that serves until the test is over.
func New(t *testing.T) *Server {
	t.Helper()
	return &Server{secretstest.New(t)}
}

// Put writes a Secret with labels: those of a cluster's, if an agent is given.
func (s *Server) Put(name, agent, server string) {
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Data:       map[string][]byte{"server": []byte(server), "config": []byte(`{"bearerToken":"secret"}`)},
	}
	if agent != "" {
		secret.Labels = map[string]string{
			"argocd-agent.argoproj-labs.io/agent-name": agent, "argocd.argoproj.io/secret-type": "cluster",
		}
	}
	s.Set(secret)
}

// PutOther puts the Secret of a cluster, called by a name in Argo CD, that is no agent's, or the agent's.
func (s *Server) PutOther(name, cluster, agent string) {
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"argocd.argoproj.io/secret-type": "cluster"}},
		Data:       map[string][]byte{"name": []byte(cluster), "server": []byte("https://" + cluster)},
	}
	if agent != "" {
		secret.Labels["argocd-agent.argoproj-labs.io/agent-name"] = agent
	}
	s.Set(secret)
}
