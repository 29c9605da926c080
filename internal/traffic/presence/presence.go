// Package presence is how a principal says which agents are connected to it, to operators and their tools: as JSON, beside its
// metrics and to the same clients.
package presence

import (
	"cmp"
	"encoding/json"
	"net/http"
	"time"
)

// Path is where a principal serves a Report.
const Path = "/agents"

// Report is what one principal knows of all agents.
type Report struct {
	// Replica is the principal's own name: that of its Pod.
	Replica string `json:"replica,omitempty"`
	// Started is when the principal did. It knows nothing of what was before.
	Started time.Time `json:"started"`
	Agents  []Agent   `json:"agents"`
}

// Agent is one of a principal's agents.
type Agent struct {
	Name      string `json:"name"`
	Connected bool   `json:"connected"`
	// Since is when Connected last changed; nil if the agent has not connected since the principal started.
	Since *time.Time `json:"since,omitempty"`
	// Build is the agent's version, as it says.
	Build string `json:"build,omitempty"`
	// Replica is the principal that the agent is connected to. Merge sets it.
	Replica string `json:"replica,omitempty"`
	// Session is the one by which objects are synchronised, if it has one.
	Session *Session `json:"session,omitempty"`
}

// Session is how an agent's session is.
type Session struct {
	// Mode is managed or autonomous.
	Mode string `json:"mode,omitempty"`
	// Address is where the agent connects from.
	Address string `json:"address,omitempty"`
	// Kubernetes and ArgoCD are the versions that its cluster runs, as the agent says; empty if it does not.
	Kubernetes string `json:"kubernetes,omitempty"`
	ArgoCD     string `json:"argocd,omitempty"`
	// Backlog is how many objects may differ from what the agent holds, and LagSeconds for how long the oldest has.
	Backlog    int     `json:"backlog"`
	LagSeconds float64 `json:"lagSeconds"`
	// CertificateEnd is when what the agent has proven ends; nil for never.
	CertificateEnd *time.Time `json:"certificateEnd,omitempty"`
}

// Handler serves what report returns, or why there is nothing yet.
func Handler(report func() (Report, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			http.Error(w, "GET only", http.StatusMethodNotAllowed)
			return
		}
		now, err := report()
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "no-store")
		_ = json.NewEncoder(w).Encode(now) // who hung up needs no answer
	})
}

// Merge returns what several principals know together, by agent. An agent is connected if it is to one of them, and has been
// away since it left the last.
func Merge(reports []Report) map[string]Agent {
	all := make(map[string]Agent)
	for _, report := range reports {
		for _, agent := range report.Agents {
			if agent.Replica = ""; agent.Connected {
				agent.Replica = report.Replica
			}
			if other, known := all[agent.Name]; !known || newer(agent, other) {
				all[agent.Name] = agent
			}
		}
	}
	return all
}

// newer reports whether a says more of an agent than b.
func newer(a, b Agent) bool {
	if a.Connected != b.Connected {
		return a.Connected
	}
	if a.Since == nil || b.Since == nil {
		return a.Since != nil
	}
	return cmp.Compare(a.Since.UnixNano(), b.Since.UnixNano()) > 0
}
