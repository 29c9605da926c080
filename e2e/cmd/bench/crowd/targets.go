package crowd

import "github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/cmd/bench/figures"

// What the product must reach, with agents of which nothing is wanted.
const (
	eachGoroutines = 8.0
	eachMemory     = 60.0 // kilobytes
	leftGoroutines = 0.5  // what stays is that of the program, whose parts have begun to work meanwhile
	leftMemory     = 4.0  // kilobytes; tables stay as large as they were, and Go keeps 0.45 kB of each goroutine that there was
	stops          = 3.0  // seconds
)

// Targets are what the figures of ours are held against.
func Targets(sizes []int) []figures.Target {
	var list []figures.Target
	for _, size := range sizes {
		title := (&crowd{size: size}).title() + ": "
		list = append(list,
			figures.Target{Part: part, Figure: title + "goroutines of an agent that is connected", Text: "at most 8", Met: figures.Under(eachGoroutines + 0.5)},
			figures.Target{Part: part, Figure: title + "memory of an agent that is connected", Text: "under 60 kB", Met: figures.Under(eachMemory)},
			figures.Target{Part: part, Figure: title + "goroutines of an agent that has left", Text: "none", Met: figures.Under(leftGoroutines)},
			figures.Target{Part: part, Figure: title + "memory of an agent that has left", Text: "under 4 kB", Met: figures.Under(leftMemory)},
			figures.Target{Part: part, Figure: title + "the principal stops", Text: "under 3 s", Met: figures.Under(stops)})
	}
	return list
}
