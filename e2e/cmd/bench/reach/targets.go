package reach

import "github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/cmd/bench/figures"

// What the product must reach.
const (
	getAbove     = 1.0   // milliseconds above the floor
	getShare     = 0.6   // of the floor's requests per second
	streamRate   = 100.0 // megabytes per second
	streamShare  = 0.4   // of the floor, where that is less
	besideTimes  = 2.0   // times what a GET takes when nothing else is asked for
	plainShare   = 0.6   // of the floor's requests per second
	pipedShare   = 0.8   // the same, with pipelining
	cachedTimes  = 1.1   // times a GET that is passed on: as fast, and a little for chance
	onDisk       = 40.0  // megabytes
	idleResident = 30.0  // megabytes
)

// Targets are what the figures of ours are held against.
func Targets() []figures.Target {
	floor := []string{figures.Floor}
	var list []figures.Target
	for _, t := range things() {
		list = append(list, figures.Target{
			Part: "get", Figure: t.name + " p50", Text: "floor + 1 ms", Beside: floor,
			Met: func(v figures.Values) bool { return v.Ours <= v.Floor+getAbove },
		}, figures.Target{
			Part: "get", Figure: t.name + ", 16 at once", Text: "60 % of the floor", Beside: floor,
			Met: func(v figures.Values) bool { return v.Ours >= getShare*v.Floor },
		})
	}
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
		text, share := "60 % of the floor, ahead of twemproxy", plainShare
		if s.pipeline > 1 {
			text, share = "80 % of the floor, ahead of twemproxy", pipedShare
		}
		for _, command := range commands() {
			list = append(list, figures.Target{
				Part: "redis", Figure: s.figure(command), Text: text, Beside: []string{figures.Floor, figures.Twemproxy},
				Met: func(v figures.Values) bool { return v.Ours >= share*v.Floor && v.Ours > v.Twemproxy },
			})
		}
	}
	return list
}
