// Package principals asks the principals of a hub which agents are connected. No object on the hub says so.
package principals

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/cluster"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/presence"
)

const (
	// Service is that of the principals' metrics. Each of its pods is asked.
	Service = "argocd-agent-principal-metrics"

	askTimeout = 5 * time.Second
	maxAnswer  = 64 << 20
)

// Presence is which agents are connected, as far as the principals say.
type Presence struct {
	agents map[string]presence.Agent
	// Unknown is why not all principals said so; nil if they did.
	Unknown error
}

// State is an agent's.
type State string

// States of an agent.
const (
	Connected State = "connected"
	Away      State = "away"
	Unknown   State = "unknown"
)

// Connection is whether an agent is connected to a principal.
type Connection struct {
	State State `json:"state"`
	// Since is when that began; nil if no principal that runs knows.
	Since *time.Time `json:"since,omitempty"`
	// Build is the agent's version, as it says, in characters that may be printed.
	Build string `json:"build,omitempty"`
	// Replica is the name of the principal that holds it.
	Replica string `json:"replica,omitempty"`
	// Session is how its session is; nil without one.
	Session *presence.Session `json:"session,omitempty"`
}

// maxText is how much of what an agent says of itself is shown.
const maxText = 64

// printable returns what an agent says as it may be shown on a terminal: an agent may say anything.
func printable(text string) string {
	if len(text) > maxText {
		text = text[:maxText]
	}
	if strings.ContainsFunc(text, func(r rune) bool { return !strconv.IsPrint(r) || r == utf8.RuneError }) {
		return strconv.QuoteToASCII(text)
	}
	return text
}

// Of returns an agent's connection. An agent of which one principal knows nothing may be connected to another one that did not
// answer: then it is unknown.
func (p Presence) Of(agent string) Connection {
	switch known := p.agents[agent]; {
	case known.Connected:
		c := Connection{State: Connected, Since: known.Since, Build: printable(known.Build), Replica: printable(known.Replica)}
		if known.Session != nil {
			session := *known.Session
			session.Kubernetes, session.ArgoCD = printable(session.Kubernetes), printable(session.ArgoCD)
			c.Session = &session
		}
		return c
	case p.Unknown != nil:
		return Connection{State: Unknown}
	default:
		return Connection{State: Away, Since: known.Since, Build: printable(known.Build)}
	}
}

// Ask asks all principals.
func Ask(ctx context.Context, hub *cluster.Client, access Access) Presence {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	answers, err := access.answers(ctx, hub)
	var reports []presence.Report
	for _, answer := range answers {
		var report presence.Report
		if wrong := json.Unmarshal(answer, &report); wrong != nil {
			err = errors.Join(err, fmt.Errorf("read a principal's answer: %w", wrong))
			continue
		}
		reports = append(reports, report)
	}
	return Presence{agents: presence.Merge(reports), Unknown: err}
}
