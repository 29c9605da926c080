package argocd

// place is a cluster, as the patterns of a project may call it.
type place struct {
	name, server string // server is empty if nobody knows it
	agent        string // whom an address may name to mean it, empty if nobody
}

// ownPlace is the cluster that Argo CD runs in, as its own projects call it.
func ownPlace() place { return place{name: InCluster, server: inClusterServer} }

// place is the agent's cluster, as the hub's projects call it.
func (r Recipient) place() place { return place{name: r.Agent, server: r.Server, agent: r.Agent} }
