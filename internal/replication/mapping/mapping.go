// Package mapping says which agent an application on the hub belongs to, and where it is on the spoke.
package mapping

import (
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/argocd"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/converge"
)

// ErrPlace means that an application has no place on the hub or on a spoke.
var ErrPlace = errors.New("no place for the application")

// Mapping translates between an application's place on the hub, its agent and key on the wire, and its place on the spoke.
type Mapping interface {
	// Name is what two sides agree on that map alike.
	Name() string
	// Autonomous returns the mapping of autonomous agents' applications, which are in the namespace of the agent's name on every
	// hub.
	Autonomous() Mapping
	OnHub
	OnSpoke
}

// OnHub is the hub's side of a Mapping.
type OnHub interface {
	// Agent returns the agent that an application on the hub is meant for, by where it is and by the name of its
	// destination, empty if for none; and whether it is that agent's, which only applications in allowed namespaces are.
	Agent(hub types.NamespacedName, destination string) (agent string, allowed bool)
	// FromHub returns the key of an application on the hub.
	FromHub(hub types.NamespacedName) converge.Key
	// ToHub returns where an agent's application is on the hub. Its errors wrap ErrPlace.
	ToHub(agent string, key converge.Key) (types.NamespacedName, error)
	// HubNamespace returns the namespace on the hub whose applications are all an agent's, empty if there is none.
	HubNamespace(agent string) string
}

// OnSpoke is the spoke's side of a Mapping.
type OnSpoke interface {
	// FromSpoke returns the key of an application on the spoke.
	FromSpoke(spoke types.NamespacedName) converge.Key
	// ToSpoke returns where an application is on the spoke. Its errors wrap ErrPlace.
	ToSpoke(key converge.Key) (types.NamespacedName, error)
	// Instance returns what Argo CD on the spoke calls the application under a key in Redis: NAMESPACE_NAME, or NAME in
	// its own namespace.
	Instance(key converge.Key) string
}

// ByNamespace maps by the namespace on the hub, which is named after the agent. On the spoke all applications are in one
// namespace. The key is the name.
type ByNamespace struct {
	// Spoke is the namespace on the spoke. The hub does not need it.
	Spoke string
	// Allowed says which namespaces on the hub are mapped; nil is all. The spoke does not need it.
	Allowed func(namespace string) bool
}

var _ Mapping = ByNamespace{}

// Name implements Mapping.
func (ByNamespace) Name() string { return "namespace" }

// Autonomous returns the mapping itself.
func (m ByNamespace) Autonomous() Mapping { return m }

// Agent takes the namespace as the agent's name.
func (m ByNamespace) Agent(hub types.NamespacedName, _ string) (agent string, allowed bool) {
	return hub.Namespace, m.allows(hub.Namespace)
}

func (m ByNamespace) allows(namespace string) bool { return m.Allowed == nil || m.Allowed(namespace) }

// FromHub takes the name as the key.
func (ByNamespace) FromHub(hub types.NamespacedName) converge.Key { return converge.Key(hub.Name) }

// HubNamespace is named after the agent.
func (ByNamespace) HubNamespace(agent string) string { return agent }

// ToHub is the reverse of Agent and FromHub.
func (m ByNamespace) ToHub(agent string, key converge.Key) (types.NamespacedName, error) {
	id := types.NamespacedName{Namespace: agent, Name: string(key)}
	if !m.allows(agent) {
		return id, fmt.Errorf("%w: the hub has no applications in namespace %q: add it to the principal's --allowed-namespaces", ErrPlace, agent)
	}
	return id, nil
}

// FromSpoke takes the name as the key.
func (ByNamespace) FromSpoke(spoke types.NamespacedName) converge.Key {
	return converge.Key(spoke.Name)
}

// ToSpoke is the reverse of FromSpoke.
func (m ByNamespace) ToSpoke(key converge.Key) (types.NamespacedName, error) {
	return types.NamespacedName{Namespace: m.Spoke, Name: string(key)}, nil
}

// Instance takes the key, as Argo CD does in its own namespace.
func (ByNamespace) Instance(key converge.Key) string { return string(key) }

// ByDestination maps by the name of an application's destination, which is the agent's. Applications stay in their
// namespaces, but those in Argo CD's own on the hub are in Argo CD's own on the spoke. The key is NAMESPACE/NAME, or NAME in
// Argo CD's own namespace.
type ByDestination struct {
	// Hub and Spoke are the namespaces of Argo CD. Either side needs its own.
	Hub, Spoke string
	// Allowed says of each namespace on this side, but Argo CD's own, whether applications may be in it.
	Allowed func(namespace string) bool
}

var _ Mapping = ByDestination{}

// Name implements Mapping.
func (ByDestination) Name() string { return "destination" }

// Autonomous returns a mapping by namespace, of any agent: the allowed namespaces are those of managed agents' applications.
func (m ByDestination) Autonomous() Mapping { return ByNamespace{Spoke: m.Spoke} }

// Agent takes the destination's name as the agent's, unless it is the hub itself.
func (m ByDestination) Agent(hub types.NamespacedName, destination string) (agent string, allowed bool) {
	if destination == "" || destination == argocd.InCluster {
		return "", false
	}
	return destination, hub.Namespace == m.Hub || m.Allowed(hub.Namespace)
}

// FromHub implements Mapping.
func (m ByDestination) FromHub(hub types.NamespacedName) converge.Key { return relative(hub, m.Hub) }

// ToHub implements Mapping.
func (m ByDestination) ToHub(_ string, key converge.Key) (types.NamespacedName, error) {
	return absolute(key, m.Hub), nil
}

// HubNamespace implements Mapping. Agents share namespaces.
func (ByDestination) HubNamespace(string) string { return "" }

// FromSpoke implements Mapping.
func (m ByDestination) FromSpoke(spoke types.NamespacedName) converge.Key {
	return relative(spoke, m.Spoke)
}

// ToSpoke implements Mapping. Argo CD's own namespace on the spoke is where those from Argo CD's own on the hub are: what is
// in a namespace of that name on the hub, but is not that, has no place.
func (m ByDestination) ToSpoke(key converge.Key) (types.NamespacedName, error) {
	id := absolute(key, m.Spoke)
	switch {
	case m.FromSpoke(id) != key:
		return id, fmt.Errorf("%w: namespace %q is Argo CD's own on the spoke, and not on the hub: move it to another namespace",
			ErrPlace, id.Namespace)
	case id.Namespace != m.Spoke && !m.Allowed(id.Namespace):
		return id, fmt.Errorf("%w: the agent may not manage applications in namespace %q: add it to the agent's --allowed-namespaces",
			ErrPlace, id.Namespace)
	}
	return id, nil
}

// Instance implements Mapping.
func (ByDestination) Instance(key converge.Key) string {
	return strings.Replace(string(key), "/", "_", 1)
}

func relative(id types.NamespacedName, own string) converge.Key {
	if id.Namespace == own {
		return converge.Key(id.Name)
	}
	return converge.Key(id.Namespace + "/" + id.Name)
}

func absolute(key converge.Key, own string) types.NamespacedName {
	if namespace, name, ok := strings.Cut(string(key), "/"); ok {
		return types.NamespacedName{Namespace: namespace, Name: name}
	}
	return types.NamespacedName{Namespace: own, Name: string(key)}
}
