package main

import "github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/cmd/bench/figures"

// What the product must reach.
const (
	propagateAbove  = 10.0  // milliseconds above the floor
	bulkTimes       = 1.5   // times the floor
	statusRate      = 500.0 // changes per second
	statusShare     = 0.8   // of the floor, where that is less
	reconnectMoves  = 100.0 // kilobytes
	principalMemory = 100.0 // megabytes
	agentMemory     = 80.0  // megabytes
)

// targets are what the figures of ours are held against. Memory is that of the part's end, with all Applications in place.
func targets() []figures.Target {
	bulkTarget := func(ours, floor float64) bool { return ours <= bulkTimes*floor }
	list := []figures.Target{
		{
			Part: "propagate", Figure: "p50", Text: "floor + 10 ms", Beside: true,
			Met: func(ours, floor float64) bool { return ours <= floor+propagateAbove },
		},
		{Part: "bulk", Figure: "creates", Text: "1.5 x floor", Beside: true, Met: bulkTarget},
		{Part: "bulk", Figure: "deletes", Text: "1.5 x floor", Beside: true, Met: bulkTarget},
		{
			Part: "status", Figure: "changes", Text: "500/s, or 80 % of the floor", Beside: true,
			Met: func(ours, floor float64) bool { return ours >= min(statusRate, statusShare*floor) },
		},
		{Part: "reconnect", Figure: "moved", Text: "under 100 kB", Met: under(reconnectMoves)},
	}
	for _, part := range parts() {
		list = append(list,
			figures.Target{Part: part.name, Figure: "principal resident", Text: "under 100 MB", Met: under(principalMemory)},
			figures.Target{Part: part.name, Figure: "agent resident", Text: "under 80 MB", Met: under(agentMemory)})
	}
	return list
}

func under(limit float64) func(ours, floor float64) bool {
	return func(ours, _ float64) bool { return ours < limit }
}
