package contest_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/cmd/bench/contest"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/cmd/bench/figures"
)

func options() contest.Options {
	return contest.Options{Runs: 3, Progress: func(string) {}}
}

// part is measured by nobody: it notes who was to.
func part(turns *[]string, measure func(contender string) (figures.Sample, error)) contest.Part {
	return contest.Part{
		Name: "part", Field: []string{figures.Floor, figures.Ours, figures.Relay},
		Measure: func(_ context.Context, contender string) (figures.Sample, error) {
			*turns = append(*turns, contender)
			return measure(contender)
		},
	}
}

func TestEachContenderGoesFirstOnce(t *testing.T) {
	var turns []string
	var report figures.Report
	err := options().Run(t.Context(), part(&turns, func(string) (figures.Sample, error) {
		return figures.Sample{{Name: "turn", Unit: figures.Times, Value: float64(len(turns))}}, nil
	}), &report)
	require.NoError(t, err)
	floor, ours, other := figures.Floor, figures.Ours, figures.Relay
	require.Equal(t, []string{floor, ours, other, ours, other, floor, other, floor, ours}, turns)
	require.Len(t, report.Rows, 1)
	require.Equal(t, 6.0, *report.Rows[0].Floor, "the median of 1, 6 and 8")
	require.Equal(t, 4.0, *report.Rows[0].Ours)
	require.Equal(t, 5.0, *report.Rows[0].Relay)
}

func TestFailedContenderIsReportedAndTheOthersAreMeasured(t *testing.T) {
	var turns []string
	var report figures.Report
	err := options().Run(t.Context(), part(&turns, func(contender string) (figures.Sample, error) {
		if contender == figures.Ours {
			return nil, errors.New("it broke")
		}
		return figures.Sample{{Name: "speed", Value: 1}}, nil
	}), &report)
	require.NoError(t, err)
	require.Len(t, turns, 9)
	require.Equal(t, []string{"part by ours: it broke", "part by ours: it broke", "part by ours: it broke"}, report.Failures)
	require.Nil(t, report.Rows[0].Ours)
	require.NotNil(t, report.Rows[0].Floor)
}

func TestTheFloorAloneAndOnce(t *testing.T) {
	var turns []string
	o := options()
	o.FloorOnly = true
	p := part(&turns, func(string) (figures.Sample, error) { return nil, nil })
	p.Once = true
	require.NoError(t, o.Run(t.Context(), p, &figures.Report{}))
	require.Equal(t, []string{figures.Floor}, turns)
}

func TestItEndsWithItsContext(t *testing.T) {
	var turns []string
	ctx, cancel := context.WithCancel(t.Context())
	err := options().Run(ctx, part(&turns, func(string) (figures.Sample, error) {
		cancel()
		return nil, ctx.Err()
	}), &figures.Report{})
	require.ErrorIs(t, err, context.Canceled)
	require.Len(t, turns, 1)
}
