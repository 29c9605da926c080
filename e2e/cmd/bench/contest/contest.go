// Package contest measures parts: each contender takes its turn, several times over, and the medians become rows of a report.
// What is measured, and on what, is for those to say who make the parts.
package contest

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/cmd/bench/figures"
)

// timeout is how long one measurement may take. An API server with half a slow CPU takes 30 ms to write a status, and
// 10,000 of them are written on two.
const timeout = 30 * time.Minute

// Part is one thing that is measured.
type Part struct {
	Name  string
	Field []string // the contenders, as package figures calls them
	Once  bool     // whether it takes so long, and is of so many, that once is enough
	// Measure measures it for one of the contenders, once.
	Measure func(ctx context.Context, contender string) (figures.Sample, error)
}

// Options say how parts are measured. All but FloorOnly are required.
type Options struct {
	Runs      int
	FloorOnly bool // leaves the other contenders out
	Targets   []figures.Target
	Progress  func(line string)
}

// Run measures a part and adds to the report what came of it. That it cannot be measured is told there too; the error is
// that the context has ended.
func (o Options) Run(ctx context.Context, part Part, report *figures.Report) error {
	runs, field := o.Runs, part.Field
	if part.Once {
		runs = 1
	}
	if o.FloorOnly {
		field = slices.DeleteFunc(slices.Clone(field), func(name string) bool { return name != figures.Floor })
	}
	samples := make(map[string][]figures.Sample)
	for run := range runs {
		for i := range field {
			contender := field[(i+run)%len(field)] // servers get slower and caches warmer: they take turns at going first
			sample, err := o.measure(ctx, part, contender)
			switch {
			case ctx.Err() != nil:
				return ctx.Err()
			case err != nil:
				report.Failures = append(report.Failures, err.Error())
			default:
				samples[contender] = append(samples[contender], sample)
			}
		}
	}
	report.Rows = append(report.Rows, figures.Combine(part.Name, samples, o.Targets)...)
	return nil
}

func (o Options) measure(ctx context.Context, part Part, contender string) (figures.Sample, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	began := time.Now()
	sample, err := part.Measure(ctx, contender)
	if err != nil {
		err = fmt.Errorf("%s by %s: %w", part.Name, contender, err)
	}
	o.Progress(fmt.Sprintf("%s by %s in %.1f s: %s", part.Name, contender, time.Since(began).Seconds(), summary(sample, err)))
	return sample, err
}

// summary is the first figure of a sample, for the impatient.
func summary(sample figures.Sample, err error) string {
	if err != nil || len(sample) == 0 {
		return "not measured"
	}
	return fmt.Sprintf("%s %.4g %s", sample[0].Name, sample[0].Value, sample[0].Unit)
}
