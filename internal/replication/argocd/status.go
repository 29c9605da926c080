package argocd

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/klauspost/compress/s2"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/strictjson"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/converge"
)

// Phases of an operation.
const (
	PhaseRunning     = "Running"
	PhaseTerminating = "Terminating"
)

// Status is what is kept of an application's status.
type Status struct {
	// Version is that of the status as the hub shows it, without the agent's conditions and without whose it is; the zero
	// Version if nothing else is in it.
	Version converge.Version
	// Phase and StartedAt are those of the operation that runs or ran last.
	Phase, StartedAt string
	// RanIntent is the intent that the operation that runs or ran last was for, empty if for none.
	RanIntent string
	// AgentConditions are the agent's conditions.
	AgentConditions []Condition
	// Nests reports whether applications may be among the application's resources.
	Nests bool

	// packed is the status as it came, without the agent's conditions, compressed: a thousand applications have a dozen
	// megabytes of it, which is read only when it changes. It is nil if there is none, or if it is not kept.
	packed []byte

	// present, listed, alone and conditionAt say how a patch gets at the agent's conditions where the status is not kept: whether
	// there is a status, whether it has a list of conditions, if an empty one, whether it has no others, and which of them are
	// the agent's.
	present, listed, alone bool
	conditionAt            []int
	// health is the application's own; nil if there is none. degraded says that a refusal is shown in its place.
	health   json.RawMessage
	degraded bool

	shown      shown
	hasHistory bool
}

// excerpt is the part of a status that decisions need.
type excerpt struct {
	OperationState struct {
		Phase     string          `json:"phase"`
		StartedAt string          `json:"startedAt"`
		Operation json.RawMessage `json:"operation"`
	} `json:"operationState"`
	History    json.RawMessage `json:"history"`
	Health     json.RawMessage `json:"health"`
	Conditions []Condition     `json:"conditions"`
}

// Info is one of an operation's infos.
type Info struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// ReadStatus returns what is to be known of a status besides the status itself.
func ReadStatus(raw json.RawMessage) Status { return reduceStatus(present(raw), false) }

// Raw returns the status as it came, without the agent's conditions; nil if there is none, or if it is not kept.
func (s Status) Raw() (json.RawMessage, error) {
	if s.packed == nil {
		return nil, nil
	}
	raw, err := s2.Decode(nil, s.packed)
	if err != nil {
		return nil, fmt.Errorf("unpack a status: %w", err)
	}
	return raw, nil
}

// Display returns the status as the hub shows it, without whose it is.
func (s Status) Display() (json.RawMessage, error) {
	raw, err := s.Raw()
	if err != nil {
		return nil, err
	}
	return DisplayStatus(raw, "")
}

// AtRest returns the status without an operation that was in progress: nobody would end it.
func (s Status) AtRest() (json.RawMessage, error) {
	raw, err := s.Raw()
	if err != nil || s.Phase != PhaseRunning && s.Phase != PhaseTerminating {
		return raw, err
	}
	status, err := decodeObject(raw)
	if err != nil {
		return nil, fmt.Errorf("status: %w", err)
	}
	delete(status, "operationState")
	return json.Marshal(status)
}

// reduceStatus returns what is kept of a status. One that does not decode is kept as nothing: the API server's schema
// does not let that happen.
func reduceStatus(raw json.RawMessage, keep bool) Status {
	var s Status
	var e excerpt
	if raw == nil || strictjson.Fields(raw, &e) != nil {
		return s
	}
	s.present, s.listed = true, e.Conditions != nil
	s.Phase, s.StartedAt = e.OperationState.Phase, e.OperationState.StartedAt
	s.RanIntent = OperationInfo(e.OperationState.Operation, InfoIntent)
	s.shown, s.hasHistory = readShown(&e), e.History != nil
	for i, c := range e.Conditions {
		switch c.Type {
		case ConditionAgent:
			s.AgentConditions, s.conditionAt = append(s.AgentConditions, c), append(s.conditionAt, i)
		case ConditionHealth:
			s.conditionAt = append(s.conditionAt, i)
		}
	}
	s.alone = s.conditionAt != nil && len(s.conditionAt) == len(e.Conditions)
	s.health, s.degraded = ownHealth(slices.Clone(e.Health), e.Conditions)
	if s.HasAgentConditions() {
		raw = WithoutAgentConditions(raw)
	}
	if raw = present(raw); raw == nil {
		return s
	}
	if display, err := DisplayStatus(raw, ""); err == nil && present(display) != nil {
		s.Version = converge.VersionOf(display)
	}
	s.Nests = bytes.Contains(raw, []byte(`"kind":"`+kindApplication+`"`)) // as the API server writes it
	if keep {
		s.packed = slices.Clone(s2.Encode(nil, raw)) // Encode makes room for the worst case
	}
	return s
}

// OperationInfo returns the value of one of an operation's infos, empty if it has none of that name. It looks at the decoded
// operation: a name may be written with escapes.
func OperationInfo(operation json.RawMessage, name string) string {
	if len(operation) == 0 {
		return ""
	}
	o, err := decodeObject(operation)
	if err != nil {
		return ""
	}
	for _, i := range infosOf(o) {
		if i.Name == name {
			return i.Value
		}
	}
	return ""
}

// WithoutInfo returns an operation without its infos of a name.
func WithoutInfo(operation json.RawMessage, name string) (json.RawMessage, error) {
	o, err := decodeObject(operation)
	if err != nil {
		return nil, fmt.Errorf("operation: %w", err)
	}
	list, _ := o["info"].([]any)
	rest := slices.DeleteFunc(list, func(item any) bool {
		i, _ := item.(map[string]any)
		return i["name"] == name
	})
	if o["info"] = rest; len(rest) == 0 {
		delete(o, "info")
	}
	return json.Marshal(o)
}

// BringsContent reports whether an operation deploys something else than what the application's spec says: sources of its own,
// as a rollback's from the history, or manifests.
func BringsContent(operation json.RawMessage) bool {
	o, err := decodeObject(operation)
	if err != nil {
		return true
	}
	sync, _ := o["sync"].(map[string]any)
	for _, field := range []string{"source", "sources", "manifests"} {
		if sync[field] != nil {
			return true
		}
	}
	return false
}

// WithInfo returns an operation with one more info.
func WithInfo(operation json.RawMessage, name, value string) (json.RawMessage, error) {
	o, err := decodeObject(operation)
	if err != nil {
		return nil, fmt.Errorf("operation: %w", err)
	}
	infos, _ := o["info"].([]any)
	o["info"] = append(infos, Info{Name: name, Value: value})
	return json.Marshal(o)
}

// WithPhase returns a status with another phase of its operation.
func WithPhase(status json.RawMessage, phase string) (json.RawMessage, error) {
	s, err := decodeObject(status)
	if err != nil {
		return nil, fmt.Errorf("status: %w", err)
	}
	if state, ok := s["operationState"].(map[string]any); ok {
		state["phase"] = phase
	}
	return json.Marshal(s)
}
