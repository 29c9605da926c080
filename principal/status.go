package main

import (
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/presence"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/principal/sessions"
)

// status returns what reports to operators which agents are connected, and how their sessions are.
func status(connected func() (presence.Report, error), running func() map[string]sessions.Session) func() (presence.Report, error) {
	return func() (presence.Report, error) {
		report, err := connected()
		if err != nil {
			return report, err
		}
		all := running()
		for i := range report.Agents {
			session, ok := all[report.Agents[i].Name]
			if !ok {
				continue
			}
			about := presence.Session{Mode: session.Mode, Address: session.Address, Backlog: session.Backlog, LagSeconds: session.Lag.Seconds()}
			if end := session.CertificateEnd.UTC(); !end.IsZero() {
				about.CertificateEnd = &end
			}
			report.Agents[i].Session = &about
		}
		return report, nil
	}
}
