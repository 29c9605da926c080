package figures_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/cmd/bench/figures"
)

func rate(value float64) figures.Sample {
	return figures.Sample{{Name: "changes", Unit: figures.PerSecond, Value: value}}
}

func half() []figures.Target {
	return []figures.Target{{
		Part: "status", Figure: "changes", Text: "half", Beside: true,
		Met: func(ours, floor float64) bool { return ours >= floor/2 },
	}}
}

func TestRowsAreMediansJudgedBesideTheFloor(t *testing.T) {
	ours := []figures.Sample{rate(900), rate(40), rate(50)}
	rows := figures.Combine("status", ours, []figures.Sample{rate(90), rate(110)}, half())
	require.Len(t, rows, 1)
	require.Equal(t, 50.0, *rows[0].Ours)
	require.Equal(t, 100.0, *rows[0].Floor)
	require.True(t, *rows[0].Met)

	rows = figures.Combine("status", []figures.Sample{rate(49)}, []figures.Sample{rate(100)}, half())
	require.False(t, *rows[0].Met)
}

func TestWhatWasNotMeasuredIsNotJudged(t *testing.T) {
	rows := figures.Combine("status", []figures.Sample{rate(49)}, nil, half())
	require.Nil(t, rows[0].Floor)
	require.Nil(t, rows[0].Met)
	require.Equal(t, "half", rows[0].Target)

	rows = figures.Combine("other", []figures.Sample{rate(49)}, []figures.Sample{rate(100)}, half())
	require.Empty(t, rows[0].Target)
	require.Nil(t, rows[0].Met)
}

func TestPercentiles(t *testing.T) {
	times := []time.Duration{5, 1, 4, 2, 3}
	require.Equal(t, time.Duration(3), figures.Percentile(times, 50))
	require.Equal(t, time.Duration(5), figures.Percentile(times, 99))
	require.Equal(t, time.Duration(1), figures.Percentile(times, 0))
	require.Zero(t, figures.Percentile(nil, 50))
	require.Equal(t, time.Duration(5), times[0], "the caller's order is left alone")
}

func TestReportShowsVerdictsAndFailures(t *testing.T) {
	report := figures.Report{
		Rows:     figures.Combine("status", []figures.Sample{rate(49)}, []figures.Sample{rate(100)}, half()),
		Failures: []string{"bulk: it was late"},
	}
	var table, data strings.Builder
	require.NoError(t, report.WriteTable(&table))
	require.Regexp(t, `status +changes +/s +49\.0 +100\.0 +0\.49 +half +MISSED`, table.String())
	require.Contains(t, table.String(), "not measured: bulk: it was late")

	require.NoError(t, report.WriteJSON(&data))
	var read figures.Report
	require.NoError(t, json.Unmarshal([]byte(data.String()), &read))
	require.Equal(t, report, read)
}
