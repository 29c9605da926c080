package reach_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/cmd/bench/figures"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/cmd/bench/reach"
)

func TestTargets(t *testing.T) {
	for _, c := range []struct {
		part, figure           string
		ours, floor, twemproxy float64
		met                    bool
	}{
		{"get", "1 kB p50", 1.9, 1, 0, true},
		{"get", "1 kB p50", 2.1, 1, 0, false},
		{"get", "1 MB, 16 at once", 60, 100, 0, true},
		{"get", "1 MB, 16 at once", 59, 100, 0, false},
		{"stream", "log", 100, 1000, 0, true},
		{"stream", "exec", 81, 200, 0, true},
		{"stream", "exec", 79, 200, 0, false},
		{"stream", "GET p50 beside the log / idle", 2.1, 2.5, 0, false},
		{"redis", "get, c 1, P 1", 60, 100, 50, true},
		{"redis", "get, c 1, P 1", 60, 100, 61, false},
		{"redis", "set, c 50, P 16", 79, 100, 50, false},
		{"redis", "set, c 50, P 16", 80, 100, 50, true},
		{"agentkey", "1 MB cached p50", 1.2, 1, 0, false},
		{"footprint", "redisproxy on disk", 39, 0, 0, true},
		{"footprint", "kubeproxy resident", 31, 0, 0, false},
	} {
		samples := make(map[string][]figures.Sample)
		for contender, value := range map[string]float64{figures.Ours: c.ours, figures.Floor: c.floor, figures.Twemproxy: c.twemproxy} {
			if value != 0 {
				samples[contender] = []figures.Sample{{{Name: c.figure, Value: value}}}
			}
		}
		rows := figures.Combine(c.part, samples, reach.Targets())
		require.NotNil(t, rows[0].Met, "%+v", c)
		require.Equal(t, c.met, *rows[0].Met, "%+v", c)
	}
}
