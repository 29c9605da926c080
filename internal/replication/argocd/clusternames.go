package argocd

import "github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/glob"

// clusterNames are what the patterns of a project may call one cluster.
type clusterNames struct {
	work         *glob.Budget // for all questions about one project
	name, server string       // server is empty if nobody knows it
	agent        string       // whom an address may name to mean it, empty if nobody
}

// inClusterNames is what a project calls the cluster that its Argo CD runs in.
func inClusterNames() clusterNames {
	return clusterNames{name: InCluster, server: inClusterServer, work: new(glob.Budget)}
}

// clusterNames is what the hub's projects call the agent's cluster.
func (r Recipient) clusterNames() clusterNames {
	return clusterNames{name: r.Agent, server: r.Server, agent: r.Agent, work: new(glob.Budget)}
}
