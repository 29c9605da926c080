package identity

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Agent is the name of an agent: a DNS label. On the hub it also names what belongs to the agent, such as its namespace.
type Agent string

// maxLabel is the length of the longest DNS label (RFC 1123), and so of a namespace's name.
const maxLabel = 63

// ErrAgentName is what every error of ParseAgent wraps.
var ErrAgentName = errors.New("agent name")

// ParseAgent returns the name as that of an agent. It refuses what is no DNS label, and names that are reserved, such as
// the hub's own namespace: an agent of that name would own the hub's own objects.
func ParseAgent(name string, reserved ...string) (Agent, error) {
	if problem := labelProblem(name); problem != "" {
		return "", fmt.Errorf("%w %q: %s: rename the agent to a DNS label, such as %q", ErrAgentName, shorten(name), problem, "cluster-1")
	}
	if slices.Contains(reserved, name) {
		return "", fmt.Errorf("%w %q: it is the name of the hub's own namespace, which no agent may own: rename the agent", ErrAgentName, name)
	}
	return Agent(name), nil
}

// labelProblem says why the name is no DNS label; it is empty for one that is.
func labelProblem(name string) string {
	const letters = "abcdefghijklmnopqrstuvwxyz0123456789"
	switch {
	case name == "":
		return "it is empty"
	case len(name) > maxLabel:
		return fmt.Sprintf("it has %d characters, and %d is the limit", len(name), maxLabel)
	case strings.ToLower(name) != name && strings.Trim(strings.ToLower(name), letters+"-") == "":
		return "it has upper-case letters"
	case strings.Trim(name, letters+"-") != "":
		return "it has characters other than lower-case letters, digits and '-'"
	case strings.HasPrefix(name, "-") || strings.HasSuffix(name, "-"):
		return "it begins or ends with '-'"
	default:
		return ""
	}
}

// shorten keeps names that a peer chose from filling the log.
func shorten(name string) string {
	if len(name) <= maxLabel+1 {
		return name
	}
	return name[:maxLabel+1] + "…"
}
