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

// samples are those of ours and of the floor.
func samples(ours, floor []float64) map[string][]figures.Sample {
	all := make(map[string][]figures.Sample)
	for _, value := range ours {
		all[figures.Ours] = append(all[figures.Ours], rate(value))
	}
	for _, value := range floor {
		all[figures.Floor] = append(all[figures.Floor], rate(value))
	}
	return all
}

func half() []figures.Target {
	return []figures.Target{{
		Part: "status", Figure: "changes", Text: "half", Beside: []string{figures.Floor},
		Met: func(v figures.Values) bool { return v.Ours >= v.Floor/2 },
	}}
}

func TestRowsAreMediansJudgedBesideTheFloor(t *testing.T) {
	rows := figures.Combine("status", samples([]float64{900, 40, 50}, []float64{90, 110}), half())
	require.Len(t, rows, 1)
	require.Equal(t, 50.0, *rows[0].Ours)
	require.Equal(t, 100.0, *rows[0].Floor)
	require.True(t, *rows[0].Met)

	rows = figures.Combine("status", samples([]float64{49}, []float64{100}), half())
	require.False(t, *rows[0].Met)
}

func TestTargetWithoutMeasurementIsNotChecked(t *testing.T) {
	rows := figures.Combine("status", samples([]float64{49}, nil), half())
	require.Nil(t, rows[0].Floor)
	require.Nil(t, rows[0].Met)
	require.Equal(t, "half", rows[0].Target)

	rows = figures.Combine("other", samples([]float64{49}, []float64{100}), half())
	require.Empty(t, rows[0].Target)
	require.Nil(t, rows[0].Met)
}

func TestRelayHasAColumnAndMaySetTheTarget(t *testing.T) {
	ahead := []figures.Target{{
		Part: "status", Figure: "changes", Text: "ahead", Beside: []string{figures.Floor, figures.Relay},
		Met: func(v figures.Values) bool { return v.Ours >= v.Floor/2 && v.Ours > v.Relay },
	}}
	all := samples([]float64{60}, []float64{100})
	rows := figures.Combine("status", all, ahead)
	require.Nil(t, rows[0].Met, "the relay was not measured")
	require.NotContains(t, table(t, rows), "RELAY")

	all[figures.Relay] = []figures.Sample{rate(50), rate(55), rate(70)}
	rows = figures.Combine("status", all, ahead)
	require.True(t, *rows[0].Met)
	require.Regexp(t, `OURS +FLOOR +RELAY +OURS/FLOOR`, table(t, rows))
	require.Regexp(t, `status +changes +/s +60\.0 +100\.0 +55\.0 +0\.60 +ahead +met`, table(t, rows))

	all[figures.Relay] = []figures.Sample{rate(61)}
	require.False(t, *figures.Combine("status", all, ahead)[0].Met)
}

func table(t *testing.T, rows []figures.Row) string {
	t.Helper()
	var text strings.Builder
	require.NoError(t, (&figures.Report{Rows: rows}).WriteTable(&text))
	return text.String()
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
		Rows:     figures.Combine("status", samples([]float64{49}, []float64{100}), half()),
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
