package clusters

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/argocd"
)

// Registered returns what is known of the cluster Secret that a principal made for an agent; nil if there is none.
func (c *Clusters) Registered(agent string) *argocd.Registered {
	for one := range c.store.Group(agent) {
		if one.registered != nil && one.id.Name == argocd.ClusterSecretName(agent) {
			return one.registered
		}
	}
	return nil
}

// AllRegistered returns the agents whose cluster Secrets a principal made.
func (c *Clusters) AllRegistered() []string {
	var agents []string
	for one := range c.store.All() {
		if one.registered != nil && one.id.Name == argocd.ClusterSecretName(one.agent) {
			agents = append(agents, one.agent)
		}
	}
	return agents
}

// RecordWrite takes in what the API server answered to a write of an agent's cluster Secret: it counts at once.
func (c *Clusters) RecordWrite(answer *corev1.Secret) error {
	if _, err := c.store.RecordWrite(answer); err != nil {
		return fmt.Errorf("cluster Secrets: %w", err)
	}
	return nil
}
