package wire

import (
	"fmt"
	"time"
)

// Versions of the protocol that this build speaks. A change that an older peer would misread raises the newest; the
// oldest follows one release later, so that one release of skew works either way.
const (
	OldestProtocol = 1
	NewestProtocol = 1
)

// Hello is the first message each way: the agent's, then the principal's answer.
type Hello struct {
	// Oldest and Newest are the versions of the protocol that the sender speaks. In the principal's answer, Newest is
	// the one that is spoken from here on.
	Oldest int `json:"oldest"`
	Newest int `json:"newest"`
	// Build is the sender's release, for logs.
	Build string `json:"build,omitempty"`
	// Kubernetes and ArgoCD are the versions that the agent's cluster runs, as the agent says and as far as it knows: for people to
	// see, and for nothing else.
	Kubernetes string `json:"kubernetes,omitempty"`
	ArgoCD     string `json:"argocd,omitempty"`
	// Agent is, in the principal's answer, the name by which it knows the agent.
	Agent string `json:"agent,omitempty"`
	// Mode is the agent's: "managed" or "autonomous".
	Mode string `json:"mode,omitempty"`
	// Mapping says how applications on the hub belong to agents, for example "namespace". Both sides must mean the same.
	Mapping string `json:"mapping,omitempty"`
	// Selector is the label selector by which the sender shares objects, empty for all. Both sides must mean the same.
	Selector string `json:"selector,omitempty"`
	// Hub is, in the principal's answer, the UID by which the hub is known.
	Hub string `json:"hub,omitempty"`
	// Seen is, in the agent's, what revision of each facet it has been told of, see converge.Peer.Seen: a principal whose cache is behind
	// must not say anything before it is not.
	Seen map[string]uint64 `json:"seen,omitempty"`
	// Heartbeat is how often, in milliseconds, both sides send something; 0 is never.
	Heartbeat int64 `json:"heartbeat,omitempty"`
	// ClusterLabels and ClusterAnnotations are what the agent says of its cluster, for one that registers itself. The principal decides
	// what counts.
	ClusterLabels      map[string]string `json:"clusterLabels,omitempty"`
	ClusterAnnotations map[string]string `json:"clusterAnnotations,omitempty"`
}

// NewHello returns a Hello with the versions of this build.
func NewHello() Hello { return Hello{Oldest: OldestProtocol, Newest: NewestProtocol} }

// maxHeartbeat is the longest interval, in milliseconds: a day. What is longer would overflow.
const maxHeartbeat = 24 * 60 * 60 * 1000

// Every returns the interval between heartbeats, 0 if there are none. It is never so short that it is a burden.
func (h Hello) Every() time.Duration {
	if h.Heartbeat <= 0 {
		return 0
	}
	return max(time.Duration(min(h.Heartbeat, maxHeartbeat))*time.Millisecond, 100*time.Millisecond)
}

// Agree returns the version that two peers speak, or an error that says which of them to upgrade.
func Agree(principal, agent Hello) (int, error) {
	newest := min(principal.Newest, agent.Newest)
	switch {
	case newest < principal.Oldest:
		return 0, fmt.Errorf("protocol: the agent (%s) speaks up to version %d, the principal (%s) from version %d on: upgrade the agent",
			agent.Build, agent.Newest, principal.Build, principal.Oldest)
	case newest < agent.Oldest:
		return 0, fmt.Errorf("protocol: the principal (%s) speaks up to version %d, the agent (%s) from version %d on: upgrade the principal",
			principal.Build, principal.Newest, agent.Build, agent.Oldest)
	}
	return newest, nil
}
