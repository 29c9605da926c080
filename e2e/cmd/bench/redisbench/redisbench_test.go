package redisbench_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/cmd/bench/redisbench"
)

const header = `"test","rps","avg_latency_ms","min_latency_ms","p50_latency_ms","p95_latency_ms","p99_latency_ms","max_latency_ms"
`

func TestRatesAreRead(t *testing.T) {
	rates, err := redisbench.Parse([]byte(header + `"SET","75187.97","0.336","0.080","0.327","0.431","0.543","1.335"
"GET","81300.81","0.312","0.072","0.303","0.391","0.479","0.823"
`))
	require.NoError(t, err)
	require.Equal(t, map[string]float64{"set": 75187.97, "get": 81300.81}, rates)
}

func TestInvalidResultTableIsRefused(t *testing.T) {
	for name, c := range map[string]struct{ table, want string }{
		"nothing":      {"", "does not say how many get"},
		"one missing":  {header + `"GET","81300.81","0.312"` + "\n", "fields"},
		"no number":    {header + `"GET","many","0.3","0.0","0.3","0.3","0.4","0.8"` + "\n", "requests per second of GET"},
		"none at all":  {header + `"GET","0.00","0.3","0.0","0.3","0.3","0.4","0.8"` + "\n", "does not say how many get"},
		"half a table": {header + `"GET","1.00","0.3","0.0","0.3","0.3","0.4","0.8"` + "\n", "does not say how many set"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := redisbench.Parse([]byte(c.table))
			require.ErrorContains(t, err, c.want)
		})
	}
}
