package main

import (
	"cmp"
	"os"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/presence"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/principal/sessions"
)

// status returns what reports to operators which agents are connected to this replica, and how their sessions are.
func status(replica string, connected func() (presence.Report, error), running func() map[string]sessions.Session) func() (presence.Report, error) {
	return func() (presence.Report, error) {
		report, err := connected()
		if err != nil {
			return report, err
		}
		report.Replica = replica
		all := running()
		for i := range report.Agents {
			session, ok := all[report.Agents[i].Name]
			if !ok {
				continue
			}
			about := presence.Session{
				Mode: session.Mode, Address: session.Address, Kubernetes: session.Kubernetes, ArgoCD: session.ArgoCD,
				Backlog: session.Backlog, LagSeconds: session.Lag.Seconds(),
			}
			if end := session.CertificateEnd.UTC(); !end.IsZero() {
				about.CertificateEnd = &end
			}
			report.Agents[i].Session = &about
		}
		return report, nil
	}
}

// replicaName returns the name by which operators tell this replica from others: the given one, or that of the host, which in a Pod is the
// Pod's.
func replicaName(given string) string {
	host, _ := os.Hostname() // a replica without a name is still one
	return cmp.Or(given, host)
}
