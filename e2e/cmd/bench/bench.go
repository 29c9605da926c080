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
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/cmd/bench/contest"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/cmd/bench/figures"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab"
)

// bench is a benchmark.
type bench struct {
	options  options
	progress func(line string)
}

// run measures what was asked for, and writes down what it found.
func run(ctx context.Context, o options, out io.Writer) error {
	began := time.Now()
	ctx = klog.NewContext(ctx, logr.Discard()) // client-go would complain of every watch that is ended
	b := &bench{options: o, progress: func(line string) {
		_, _ = fmt.Fprintf(out, "bench: %6.1fs  %s\n", time.Since(began).Seconds(), line)
	}}
	report := figures.Report{
		Began: began, Revision: revision(), CPUs: runtime.NumCPU(), Applications: o.applications,
		Seconds: o.seconds, Megabytes: o.megabytes, Requests: o.requests, Runs: o.runs,
	}
	var failures []error
	for _, s := range o.suites() {
		err := b.perform(ctx, s, &report)
		if ctx.Err() != nil {
			return err
		}
		failures = append(failures, err) // what the other labs have shown is not lost
	}
	return errors.Join(append(failures, save(&report, o.json), report.WriteTable(out))...)
}

// perform measures the parts of a suite that were asked for. Without any, there is no lab.
func (b *bench) perform(ctx context.Context, s suite, report *figures.Report) (err error) {
	if len(s.wanted(b.options.only)) == 0 {
		return nil
	}
	options := s.lab
	options.Progress = b.progress
	// What is measured is what `make build` makes.
	options.BuildFlags, options.BuildEnv = []string{"-trimpath", "-ldflags=-s -w"}, []string{"CGO_ENABLED=0"}
	l, err := lab.Start(ctx, options)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	judge := contest.Options{
		Runs: b.options.runs, FloorOnly: b.options.floorOnly, Targets: s.targets, Progress: b.progress,
	}
	for _, part := range s.parts(l) {
		if !s.wanted(b.options.only)[part.Name] {
			continue
		}
		if err := judge.Run(ctx, part, report); err != nil {
			return err
		}
	}
	return nil
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
