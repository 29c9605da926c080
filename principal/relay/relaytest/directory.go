package relaytest

import (
	"iter"
	"slices"
	"strings"
	"sync"

	tunnelv1 "github.com/argocd-agent-mesh/argocd-agent-mesh/api/tunnel/v1"
)

// ByName is how names begin of agents whose applications are told of one by one. All others have the namespaces of their
// names.
const ByName = "by-name"

// Directory says which of the hub's applications are whose, as a test has it say. The Exchange is to be told of changes.
type Directory struct {
	mu       sync.Mutex
	assigned map[string]*tunnelv1.Assignment // by instance. Guarded by mu
	housed   map[string]bool                 // agents that have namespaces though their names say otherwise. Guarded by mu
}

// Assign makes an application be an agent's; its instance is called the same on the spoke. It is no agent's if that is empty.
func (d *Directory) Assign(instance, agent string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.assigned == nil {
		d.assigned = make(map[string]*tunnelv1.Assignment)
	}
	d.assigned[instance] = &tunnelv1.Assignment{Instance: instance, Agent: agent, SpokeInstance: instance}
}

// House gives an agent the namespace of its name, whatever that begins with.
func (d *Directory) House(agent string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.housed = map[string]bool{agent: true}
}

// Namespace implements exchange.Directory.
func (d *Directory) Namespace(agent string) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if strings.HasPrefix(agent, ByName) && !d.housed[agent] {
		return ""
	}
	return agent
}

// Instances implements exchange.Directory.
func (d *Directory) Instances(agent string) iter.Seq[string] {
	d.mu.Lock()
	defer d.mu.Unlock()
	var instances []string
	for instance, a := range d.assigned {
		if a.GetAgent() == agent {
			instances = append(instances, instance)
		}
	}
	return slices.Values(instances)
}

// Assigned implements exchange.Directory.
func (d *Directory) Assigned(instance string) (agent, spokeInstance string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	a := d.assigned[instance]
	if d.housed[a.GetAgent()] {
		return "", ""
	}
	return a.GetAgent(), a.GetSpokeInstance()
}
