package main

import (
	"log/slog"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/settings"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/converge"
)

// limitSettings are what an operator decides about how much one agent may make the principal do.
type limitSettings struct{ objects, changes int }

func (s *limitSettings) declare(set *settings.Set) {
	set.Int(&s.objects, "max-objects-per-agent", "ARGOCD_PRINCIPAL_MAX_OBJECTS_PER_AGENT", 20_000,
		"how many objects of each kind an agent may show or report on; more are refused; 0 for no limit", settings.NonNegative)
	set.Int(&s.changes, "agent-changes-per-second", "ARGOCD_PRINCIPAL_AGENT_CHANGES_PER_SECOND", 500,
		"how many changes of one agent are taken in a second, after a burst of twenty times as many; an agent that sends more is read more "+
			"slowly; 0 for no limit", settings.NonNegative)
}

// limit adds the limits to what is shared with agents.
func (s *limitSettings) limit(share func(agent, mode string) converge.Options, logger *slog.Logger) func(agent, mode string) converge.Options {
	return func(agent, mode string) converge.Options {
		options := share(agent, mode)
		options.Limits = converge.Limits{Objects: s.objects, Changes: s.changes, Reached: func(limit string) {
			logger.Warn("An agent reached a limit; what is beyond it is refused or waits", "agent", agent, "limit", limit)
		}}
		return options
	}
}
