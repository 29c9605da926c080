package identity

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// Agent is the name of an agent: a DNS label. On the hub it also names what belongs to the agent, such as its namespace.
type Agent string

// ErrAgentName is what every error of ParseAgent wraps.
var ErrAgentName = errors.New("agent name")

// ParseAgent returns the name as that of an agent. It refuses what is no DNS label, and names that are reserved, such as
// the hub's own namespace or cluster: an agent of that name would own the hub's own objects.
func ParseAgent(name string, reserved ...string) (Agent, error) {
	if problems := validation.IsDNS1123Label(name); len(problems) > 0 {
		return "", fmt.Errorf("%w %q: %s: rename the agent", ErrAgentName, shorten(name, validation.DNS1123LabelMaxLength), strings.Join(problems, "; "))
	}
	if slices.Contains(reserved, name) {
		return "", fmt.Errorf("%w %q: it is the name of the hub's own namespace or cluster, which no agent may own: rename the agent", ErrAgentName, name)
	}
	return Agent(name), nil
}

// shorten keeps text that a peer chose from filling the log.
func shorten(text string, most int) string {
	if len(text) <= most+1 {
		return text
	}
	return text[:most+1] + "…"
}
