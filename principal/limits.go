package main

import (
	"log/slog"
	"net"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/settings"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/converge"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/connlimit"
)

// limitSettings are what an operator decides about how much one agent may make the principal do.
type limitSettings struct{ objects, changes, connections, sessions int }

// maxConnectionsOfOne is how many connections may come with one certificate. An agent needs one, and of those that broke off, the
// principal notices within twenty seconds.
const maxConnectionsOfOne = 64

func (s *limitSettings) declare(set *settings.Set) {
	set.Int(&s.objects, "max-objects-per-agent", "ARGOCD_PRINCIPAL_MAX_OBJECTS_PER_AGENT", 20_000,
		"how many objects of each kind an agent may show or report on; more are refused; 0 for no limit", settings.NonNegative)
	set.Int(&s.changes, "agent-changes-per-second", "ARGOCD_PRINCIPAL_AGENT_CHANGES_PER_SECOND", 500,
		"how many changes of one agent are taken in a second, after a burst of twenty times as many; an agent that sends more is read more "+
			"slowly; 0 for no limit", settings.NonNegative)
	set.Int(&s.sessions, "sessions-per-second", "ARGOCD_PRINCIPAL_SESSIONS_PER_SECOND", 300,
		"how many agents may begin a session in a second, and as many at once after a while; others are told when to connect again; 0 for no limit", settings.NonNegative)
	set.Int(&s.connections, "max-connections", "ARGOCD_PRINCIPAL_MAX_CONNECTIONS", 20_000,
		"how many connections of agents and components there may be that have authenticated; more are refused; a quarter as many handshakes may be in progress besides", settings.Positive)
}

// listen bounds the connections that a listener accepts.
func (s *limitSettings) listen(listener net.Listener, logger *slog.Logger) net.Listener {
	return connlimit.New(connlimit.Options{
		Total: s.connections, Setting: "--max-connections", PerCertificate: maxConnectionsOfOne, Logger: logger,
	}).Listen(listener)
}

// budget returns a budget with the limits for an agent.
func (s *limitSettings) budget(agent string, logger *slog.Logger) *converge.Budget {
	return converge.NewBudget(converge.Limits{Objects: s.objects, Changes: s.changes, Reached: func(limit, setting string) {
		logger := logger.With("agent", agent, "limit", limit)
		if setting != "" {
			logger = logger.With("setting", setting)
		}
		logger.Warn("An agent reached a limit; what is beyond it is refused or waits")
	}})
}
