package argocd

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/jsonsize"
)

const (
	// RefusesApplication is how the message of a condition begins by which one side refuses an application, after whose name.
	RefusesApplication = " refuses this application: "
	// RefusedIntent is how that begins by which the spoke refuses an intent.
	RefusedIntent = "The spoke refuses what was asked for: "

	refusedBySpoke = "The spoke" + RefusesApplication
)

// healthDegraded is the status of a health (gitops-engine, HealthStatusDegraded).
const healthDegraded = "Degraded"

// maxHealthValues is how many values and keys of JSON a health may have. Argo CD's have seven.
const maxHealthValues = 32

// Condition is an application's condition.
type Condition struct {
	Type               string `json:"type"`
	Message            string `json:"message"`
	LastTransitionTime string `json:"lastTransitionTime,omitempty"`
}

// AgentCondition returns a condition of the agent's with a message for the application's owner.
func AgentCondition(message string, now time.Time) Condition {
	return Condition{Type: ConditionAgent, Message: message, LastTransitionTime: now.UTC().Format(time.RFC3339)}
}

// health is an application's health as the hub shows it in place of the application's own.
type health struct {
	Status             string `json:"status"`
	Message            string `json:"message"`
	LastTransitionTime string `json:"lastTransitionTime,omitempty"`
}

// refusedHealth returns the health of an application with these conditions, nil if nothing is refused and it has its own. It
// depends on them alone: the same refusal is not written twice.
func refusedHealth(conditions []Condition) *health {
	for _, c := range conditions {
		if strings.HasPrefix(c.Message, refusedBySpoke) || strings.HasPrefix(c.Message, RefusedIntent) {
			return &health{Status: healthDegraded, Message: c.Message, LastTransitionTime: c.LastTransitionTime}
		}
	}
	return nil
}

// keepHealth returns the condition that keeps an application's own health, nil for none, while a refusal is shown in its place.
// It is in the status, which alone is the principal's to write on the hub, and outlives the principal.
func keepHealth(own json.RawMessage, since string) Condition {
	if own == nil {
		own = json.RawMessage("null")
	}
	return Condition{Type: ConditionHealth, Message: string(own), LastTransitionTime: since}
}

// ownHealth returns the application's own health, nil if it has none, of a status with that health and these conditions; and whether a
// refusal is shown in its place. What is shown by somebody else counts as its own, and is corrected as any such change.
func ownHealth(shows json.RawMessage, conditions []Condition) (own json.RawMessage, degraded bool) {
	var is health
	at := slices.IndexFunc(conditions, func(c Condition) bool { return c.Type == ConditionHealth })
	if at < 0 || json.Unmarshal(shows, &is) != nil || is.Status != healthDegraded {
		return shows, false
	}
	kept := json.RawMessage(conditions[at].Message)
	switch {
	case string(kept) == "null":
		return nil, true
	case !isHealth(kept):
		return shows, false
	default:
		return kept, true
	}
}

// isHealth reports whether a text is a health and nothing else. One that a peer writes into a condition comes as a single value, whatever is in
// it: nobody has counted that.
func isHealth(text json.RawMessage) bool {
	return jsonsize.Values(text) <= maxHealthValues && json.Unmarshal(text, new(health)) == nil
}

// HasAgentConditions reports whether a status has conditions of the agent's.
func (s Status) HasAgentConditions() bool { return s.conditionAt != nil }

// PatchAgentConditions adds to a patch what makes these the agent's conditions, unless they are. If by one of them the spoke
// refuses something, the patch makes the application Degraded, else it gives it its own health back.
func (s Status) PatchAgentConditions(p *Patch, conditions []Condition) {
	shown := refusedHealth(conditions)
	if slices.Equal(s.AgentConditions, conditions) && s.degraded == (shown != nil) {
		return
	}
	if s.alone { // an empty list would not be what the spoke says
		p.Remove("status", "conditions")
	} else {
		for _, i := range slices.Backward(s.conditionAt) { // the last first, since what follows moves up
			p.Remove("status", "conditions", strconv.Itoa(i))
		}
	}
	if shown != nil {
		conditions = append(slices.Clone(conditions), keepHealth(s.health, shown.LastTransitionTime))
	}
	switch {
	case !s.present && shown != nil:
		p.Replace(map[string]any{"conditions": conditions, "health": shown}, "status")
		return
	case !s.present && len(conditions) > 0:
		p.Replace(map[string]any{"conditions": conditions}, "status")
		return
	case len(conditions) == 0:
	case !s.listed, s.alone:
		p.Replace(conditions, "status", "conditions")
	default:
		for _, c := range conditions {
			p.Replace(c, "status", "conditions", "-")
		}
	}
	switch {
	case shown != nil:
		p.Replace(shown, "status", "health")
	case s.degraded && s.health == nil:
		p.Remove("status", "health")
	case s.degraded:
		p.Replace(s.health, "status", "health")
	}
}

// WithAgentConditions returns a status that has none of the agent's conditions with these added, and as Degraded if by one of
// them the spoke refuses something.
func WithAgentConditions(status json.RawMessage, added []Condition) (json.RawMessage, error) {
	if len(added) == 0 {
		return status, nil
	}
	s, err := decodeObject(status)
	if err != nil {
		return nil, fmt.Errorf("status: %w", err)
	}
	if shown := refusedHealth(added); shown != nil {
		own, err := healthToKeep(s)
		if err != nil {
			return nil, err
		}
		added = append(slices.Clone(added), keepHealth(own, shown.LastTransitionTime))
		s["health"] = shown
	}
	conditions, _ := s["conditions"].([]any)
	for _, c := range added {
		conditions = append(conditions, c)
	}
	s["conditions"] = conditions
	return json.Marshal(s)
}

// healthToKeep returns the health in a status; nil if there is none, or what would not be taken for one when it is given back.
func healthToKeep(status map[string]any) (json.RawMessage, error) {
	own, err := json.Marshal(status["health"])
	if err != nil {
		return nil, fmt.Errorf("status.health: %w", err)
	}
	if status["health"] == nil || !isHealth(own) {
		return nil, nil
	}
	return own, nil
}

// WithoutAgentConditions returns a status without the agent's conditions, and with the application's own health.
func WithoutAgentConditions(status json.RawMessage) json.RawMessage {
	s, err := decodeObject(status)
	if err != nil {
		return status
	}
	conditions, _ := s["conditions"].([]any)
	var rest []any
	var ours []Condition
	for _, c := range conditions {
		m, _ := c.(map[string]any)
		of, _ := m["type"].(string)
		if of != ConditionAgent && of != ConditionHealth {
			rest = append(rest, c)
			continue
		}
		message, _ := m["message"].(string)
		ours = append(ours, Condition{Type: of, Message: message})
	}
	delete(s, "conditions")
	if len(rest) > 0 {
		s["conditions"] = rest
	}
	if shows, err := json.Marshal(s["health"]); err == nil {
		if own, degraded := ownHealth(shows, ours); degraded {
			delete(s, "health")
			if own != nil {
				s["health"] = own
			}
		}
	}
	out, err := json.Marshal(s)
	if err != nil {
		return status
	}
	return out
}
