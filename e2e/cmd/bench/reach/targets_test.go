package reach_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/cmd/bench/figures"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/cmd/bench/reach"
)

func TestTargets(t *testing.T) {
	for _, c := range []struct {
		part, figure string
		ours, floor  float64
		met          bool
	}{
		{"get", "1 kB p50", 3.9, 1, true},
		{"get", "1 kB p50", 4.1, 1, false},
		{"stream", "log", 100, 1000, true},
		{"stream", "exec", 81, 200, true},
		{"stream", "exec", 79, 200, false},
		{"stream", "GET p50 beside the log / idle", 2.1, 2.5, false},
		{"redis", "get, c 1", 50, 100, true},
		{"redis", "set, c 50", 49, 100, false},
		{"agentkey", "1 MB cached p50", 1.2, 1, false},
		{"footprint", "redisproxy on disk", 39, 0, true},
		{"footprint", "kubeproxy resident", 31, 0, false},
	} {
		samples := make(map[string][]figures.Sample)
		for contender, value := range map[string]float64{figures.Ours: c.ours, figures.Floor: c.floor} {
			if value != 0 {
				samples[contender] = []figures.Sample{{{Name: c.figure, Value: value}}}
			}
		}
		rows := figures.Combine(c.part, samples, reach.Targets())
		require.NotNil(t, rows[0].Met, "%+v", c)
		require.Equal(t, c.met, *rows[0].Met, "%+v", c)
	}
}
