package reach

import "github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/cmd/bench/figures"

// What the product must reach.
const (
	getAbove     = 3.0   // milliseconds above the floor, of a small GET
	streamRate   = 100.0 // megabytes per second
	streamShare  = 0.4   // of the floor, where that is less
	besideTimes  = 2.0   // times what a GET takes when nothing else is asked for
	redisShare   = 0.5   // of the floor's requests per second, without pipelining
	cachedTimes  = 1.1   // times a GET that is passed on: as fast, and a little for chance
	onDisk       = 40.0  // megabytes
	idleResident = 30.0  // megabytes
)

// Targets are what the figures of ours are held against.
func Targets() []figures.Target {
	floor := []string{figures.Floor}
	list := []figures.Target{{
		Part: "get", Figure: "1 kB p50", Text: "floor + 3 ms", Beside: floor,
		Met: func(v figures.Values) bool { return v.Ours <= v.Floor+getAbove },
	}}
	for _, name := range []string{"log", "exec"} {
		list = append(list, figures.Target{
			Part: "stream", Figure: name, Text: "100 MB/s, or 40 % of the floor", Beside: floor,
			Met: func(v figures.Values) bool { return v.Ours >= min(streamRate, streamShare*v.Floor) },
		})
	}
	list = append(list, figures.Target{
		Part: "stream", Figure: "GET p50 beside the log / idle", Text: "at most 2",
		Met: func(v figures.Values) bool { return v.Ours <= besideTimes },
	})
	for _, v := range values() {
		list = append(list, figures.Target{
			Part: "agentkey", Figure: v.name + " cached p50", Text: "1.1 x floor", Beside: floor,
			Met: func(v figures.Values) bool { return v.Ours <= cachedTimes*v.Floor },
		})
	}
	for _, name := range []string{"kubeproxy", "redisproxy"} {
		list = append(list,
			figures.Target{Part: "footprint", Figure: name + " on disk", Text: "under 40 MB", Met: figures.Under(onDisk)},
			figures.Target{Part: "footprint", Figure: name + " resident", Text: "under 30 MB", Met: figures.Under(idleResident)})
	}
	return append(list, redisTargets()...)
}

func redisTargets() []figures.Target {
	var list []figures.Target
	for _, s := range shapes() {
		for _, command := range commands() {
			list = append(list, figures.Target{
				Part: "redis", Figure: s.figure(command), Text: "50 % of the floor", Beside: []string{figures.Floor},
				Met: func(v figures.Values) bool { return v.Ours >= redisShare*v.Floor },
			})
		}
	}
	return list
}
