// Package mapping says which agent an application on the hub belongs to, and where it is on the spoke.
package mapping

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/converge"
)

// Mapping translates between an application's place on the hub, its agent and key on the wire, and its place on the spoke.
type Mapping interface {
	// FromHub returns the agent that an application on the hub belongs to, and its key.
	FromHub(hub types.NamespacedName) (agent string, key converge.Key)
	// ToHub returns where an agent's application is on the hub.
	ToHub(agent string, key converge.Key) types.NamespacedName
	// FromSpoke returns the key of an application on the spoke.
	FromSpoke(spoke types.NamespacedName) converge.Key
	// ToSpoke returns where an application is on the spoke.
	ToSpoke(key converge.Key) types.NamespacedName
}

// ByNamespaceName is how ByNamespace is called where two sides agree on a mapping.
const ByNamespaceName = "namespace"

// ByNamespace maps by the namespace on the hub, which is named after the agent. On the spoke all applications are in one
// namespace. The key is the name.
type ByNamespace struct {
	// Spoke is the namespace on the spoke.
	Spoke string
}

var _ Mapping = ByNamespace{}

// FromHub takes the namespace as the agent's name.
func (ByNamespace) FromHub(hub types.NamespacedName) (string, converge.Key) {
	return hub.Namespace, converge.Key(hub.Name)
}

// HubNamespace returns the namespace on the hub whose applications are all an agent's.
func (ByNamespace) HubNamespace(agent string) string { return agent }

// ToHub is the reverse of FromHub.
func (ByNamespace) ToHub(agent string, key converge.Key) types.NamespacedName {
	return types.NamespacedName{Namespace: agent, Name: string(key)}
}

// FromSpoke takes the name as the key.
func (ByNamespace) FromSpoke(spoke types.NamespacedName) converge.Key {
	return converge.Key(spoke.Name)
}

// ToSpoke is the reverse of FromSpoke.
func (m ByNamespace) ToSpoke(key converge.Key) types.NamespacedName {
	return types.NamespacedName{Namespace: m.Spoke, Name: string(key)}
}
