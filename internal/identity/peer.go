package identity

// Peer is who is at the other end of a connection, and what proved it.
type Peer struct {
	Proof

	// Agent is the peer's name, if it is an agent.
	Agent Agent
	// Component is the peer's name, if it is a component of the hub.
	Component string
	// Targets are what that component may dial at an agent.
	Targets []string
}
