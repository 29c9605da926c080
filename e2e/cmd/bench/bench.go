package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/cmd/bench/figures"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/cmd/bench/load"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab"
)

// spokeName is the name of the one spoke, of its agent, and of the agent's namespace on the hub.
const spokeName = "spoke"

// patience is how long one measurement may take. An API server with half a slow CPU takes 30 ms to write a status, and
// 10,000 of them are written on two.
const patience = 30 * time.Minute

// Names of the contenders.
const (
	floorName = "the floor"
	oursName  = "ours"
)

// bench is a benchmark on its lab.
type bench struct {
	options  options
	lab      *lab.Lab
	hub      load.Site
	spoke    load.Site
	progress func(line string)
}

// run starts a lab, measures on it, and writes down what it found.
func run(ctx context.Context, o options, out io.Writer) (err error) {
	began := time.Now()
	ctx = klog.NewContext(ctx, logr.Discard()) // client-go would complain of every watch that is ended
	progress := func(line string) {
		_, _ = fmt.Fprintf(out, "bench: %6.1fs  %s\n", time.Since(began).Seconds(), line)
	}
	// No application controller: its writes would be measured too. The benchmark writes the statuses that it would.
	l, err := lab.Start(ctx, lab.Options{Spokes: []string{spokeName}, Direct: true, Progress: progress})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	b := &bench{
		options: o, lab: l, progress: progress,
		hub:   load.Site{Cluster: l.Hub.Cluster, Namespace: spokeName},
		spoke: load.Site{Cluster: l.Spoke(spokeName).Cluster, Namespace: lab.Namespace},
	}
	report := figures.Report{
		Began: began, Revision: revision(), CPUs: runtime.NumCPU(), Applications: o.applications, Runs: o.runs,
	}
	if err := b.measure(ctx, &report); err != nil {
		return err
	}
	return errors.Join(save(&report, o.json), report.WriteTable(out))
}

// measure fills in the report.
func (b *bench) measure(ctx context.Context, report *figures.Report) error {
	for _, p := range parts() {
		if !slices.Contains(b.options.only, p.name) {
			continue
		}
		if err := b.contest(ctx, p, b.contenders(), report); err != nil {
			return err
		}
	}
	return nil
}

// contest measures one part. That it cannot be measured is told in the report; the others are measured all the same.
func (b *bench) contest(ctx context.Context, p part, field []contender, report *figures.Report) error {
	runs := b.options.runs
	if p.once {
		runs = 1
	}
	samples := make(map[string][]figures.Sample)
	for run := range runs {
		for i := range field {
			c := field[(i+run)%len(field)] // servers get slower and caches warmer: each goes first as often
			sample, err := b.perform(ctx, p, c)
			switch {
			case ctx.Err() != nil:
				return ctx.Err()
			case err != nil:
				report.Failures = append(report.Failures, err.Error())
			default:
				samples[c.name] = append(samples[c.name], sample)
			}
		}
	}
	report.Rows = append(report.Rows, figures.Combine(p.name, samples[oursName], samples[floorName], targets())...)
	return nil
}

// contenders are the floor and ours, or the floor alone.
func (b *bench) contenders() []contender {
	floor := contender{floorName, func(ctx context.Context, counted bool) (carrier, error) { return newPlain(ctx, b.lab, counted) }}
	if b.options.floorOnly {
		return []contender{floor}
	}
	return []contender{
		floor,
		{oursName, func(ctx context.Context, counted bool) (carrier, error) { return newOurs(ctx, b, counted) }},
	}
}

// perform measures a part once, on an empty hub and spoke.
func (b *bench) perform(ctx context.Context, p part, c contender) (sample figures.Sample, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := errors.Join(b.hub.Clear(ctx), b.spoke.Clear(ctx)); err != nil {
		return nil, fmt.Errorf("%s: %w", p.name, err)
	}
	began := time.Now()
	sample, err = b.attempt(ctx, p, c)
	b.progress(fmt.Sprintf("%s by %s in %.1f s: %s", p.name, c.name, time.Since(began).Seconds(), summary(sample, err)))
	return sample, err
}

// attempt measures a part with a new carrier and stops that.
func (b *bench) attempt(ctx context.Context, p part, c contender) (figures.Sample, error) {
	carrier, err := c.make(ctx, p.counted)
	if err != nil {
		return nil, fmt.Errorf("%s by %s: %w", p.name, c.name, err)
	}
	sample, err := p.measure(ctx, &stage{bench: b, carrier: carrier, meter: newMeter(b.lab, carrier)})
	if err != nil {
		err = fmt.Errorf("%s by %s: %w\n%s", p.name, c.name, err, carrier.report())
	}
	// What is stopped need not have time left of what was measured.
	return sample, errors.Join(err, carrier.rest(context.WithoutCancel(ctx)))
}

// summary is the first figure of a sample, for the impatient.
func summary(sample figures.Sample, err error) string {
	if err != nil || len(sample) == 0 {
		return "not measured"
	}
	return fmt.Sprintf("%s %.4g %s", sample[0].Name, sample[0].Value, sample[0].Unit)
}

func save(report *figures.Report, path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("figures: %w", err)
	}
	file, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("figures: %w", err)
	}
	return errors.Join(report.WriteJSON(file), file.Close())
}

// revision is what this program, and so what it measures, was built from.
func revision() string {
	info, _ := debug.ReadBuildInfo()
	var revision, modified string
	if info != nil {
		for _, setting := range info.Settings {
			switch {
			case setting.Key == "vcs.revision":
				revision = setting.Value
			case setting.Key == "vcs.modified" && setting.Value == "true":
				modified = "-dirty"
			}
		}
	}
	return revision + modified
}
