package argocd

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/converge"
)

// Move says that the applications of one namespace are in another on the other side. Those that are resources of others are
// named with their namespaces, and users go from one to the other by these names.
type Move struct{ From, To string }

// Back is the way back.
func (m Move) Back() Move { return Move{m.To, m.From} }

// Status returns a status in which applications that were moved are named as they are on the other side, and the version of
// that.
func (m Move) Status(s Status) (json.RawMessage, converge.Version, error) {
	raw, err := s.Display()
	if err != nil || !s.Nests {
		return raw, s.Version, err
	}
	status, err := decodeObject(raw)
	if err != nil {
		return nil, converge.Version{}, fmt.Errorf("status: %w", err)
	}
	m.resources(status)
	if state, ok := status["operationState"].(map[string]any); ok {
		m.resources(state["syncResult"])
	}
	if raw, err = json.Marshal(status); err != nil {
		return nil, converge.Version{}, fmt.Errorf("status: %w", err)
	}
	return raw, converge.VersionOf(raw), nil
}

// Operation returns an operation in which applications that were moved are named as they are on the other side: a sync may be
// of some of the resources only.
func (m Move) Operation(raw json.RawMessage) (json.RawMessage, error) {
	if !bytes.Contains(raw, []byte(kindApplication)) {
		return raw, nil
	}
	operation, err := decodeObject(raw)
	if err != nil {
		return nil, fmt.Errorf("operation: %w", err)
	}
	m.resources(operation["sync"])
	return json.Marshal(operation)
}

// resources moves the applications among the resources of something.
func (m Move) resources(of any) {
	holder, _ := of.(map[string]any)
	resources, _ := holder["resources"].([]any)
	for _, r := range resources {
		resource, _ := r.(map[string]any)
		if m.Concerns(resource["group"], resource["kind"], resource["namespace"]) {
			resource["namespace"] = m.To
		}
	}
}

// Concerns reports whether something is an application that was moved, by its group, kind and namespace.
func (m Move) Concerns(group, kind, namespace any) bool {
	return group == GroupVersion.Group && kind == kindApplication && namespace == m.From
}
