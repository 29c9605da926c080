package carry

import "github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/cmd/bench/figures"

// What the product must reach.
const (
	propagateAbove  = 10.0  // milliseconds above the floor
	timesFloor      = 1.5   // times the floor, of many at once
	statusShare     = 0.8   // of the floor
	reconnectTakes  = 1.0   // seconds, with the Applications in place
	reconnectMoves  = 100.0 // kilobytes
	principalMemory = 100.0 // megabytes
	agentMemory     = 80.0  // megabytes
)

// Targets are what the figures of ours are held against. Memory is that of the part's end, with all Applications in place.
func Targets() []figures.Target {
	nearFloor := func(v figures.Values) bool { return v.Ours <= timesFloor*v.Floor }
	floor := []string{figures.Floor}
	list := []figures.Target{
		{
			Part: "propagate", Figure: "p50", Text: "floor + 10 ms", Beside: floor,
			Met: func(v figures.Values) bool { return v.Ours <= v.Floor+propagateAbove },
		},
		{Part: "bulk", Figure: "creates", Text: "1.5 x floor", Beside: floor, Met: nearFloor},
		{Part: "bulk", Figure: "deletes", Text: "1.5 x floor", Beside: floor, Met: nearFloor},
		{Part: "first-sync", Figure: "all there", Text: "1.5 x floor", Beside: floor, Met: nearFloor},
		{
			Part: "status", Figure: "changes", Text: "80 % of the floor", Beside: floor,
			Met: func(v figures.Values) bool { return v.Ours >= statusShare*v.Floor },
		},
		{Part: "reconnect", Figure: "next change", Text: "under 1 s", Met: figures.Under(reconnectTakes)},
		{Part: "reconnect", Figure: "moved", Text: "under 100 kB", Met: figures.Under(reconnectMoves)},
	}
	for _, part := range Names() {
		list = append(list,
			figures.Target{Part: part, Figure: "principal resident", Text: "under 100 MB", Met: figures.Under(principalMemory)},
			figures.Target{Part: part, Figure: "agent resident", Text: "under 80 MB", Met: figures.Under(agentMemory)})
	}
	return list
}
