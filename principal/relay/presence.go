package relay

import (
	"errors"
	"maps"
	"slices"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/presence"
)

// Presence returns which agents there are and which of them are connected, sorted by name. It is an error before the directory
// is complete: agents would be missing.
func (d *Directory) Presence() (presence.Report, error) {
	select {
	case <-d.complete:
	default:
		return presence.Report{}, errors.New("the principal is starting and does not know all agents yet: ask again")
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	report := presence.Report{Started: d.started, Agents: make([]presence.Agent, 0, len(d.agents))}
	for _, name := range slices.Sorted(maps.Keys(d.agents)) {
		s := d.agents[name]
		// Each principal says which are connected to it alone; who asks asks all of them.
		agent := presence.Agent{Name: name, Connected: s.connected && s.holder == d.roster.Self().ID, Build: s.build}
		if s.seen {
			agent.Since = &s.since
		}
		report.Agents = append(report.Agents, agent)
	}
	return report, nil
}
