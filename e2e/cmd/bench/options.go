package main

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/toolset"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/settings"
)

// options are what a person decides about a benchmark.
type options struct {
	only          []string
	applications  int
	samples       int
	changes       int
	runs          int
	json          string
	floorOnly     bool
	principalArgs []string
	agentArgs     []string
}

// parse reads the arguments; help goes to out.
func parse(args []string, out io.Writer) (options, error) {
	var o options
	repository, err := toolset.Repository()
	if err != nil {
		return o, err
	}
	var names []string
	for _, p := range parts() {
		names = append(names, p.name)
	}
	none := func(string) (string, bool) { return "", false } // what is measured is not left to the environment
	set := settings.New("bench", none)
	set.Strings(&o.only, "only", "", names, "Parts to measure", settings.Each(settings.OneOf(names...)))
	set.Int(&o.applications, "applications", "", 1000, "Applications in bulk, status and reconnect", settings.Positive)
	set.Int(&o.samples, "samples", "", 200, "Applications in propagate, one at a time", settings.Positive)
	set.Int(&o.changes, "changes", "", 10, "Changes of each Application's status", settings.Positive)
	set.Int(&o.runs, "runs", "", 3, "Times to measure all but status; figures are medians", settings.Positive)
	set.String(&o.json, "json", "", filepath.Join(repository, "bin", "bench.json"), "File for the figures", settings.NonEmpty)
	set.Bool(&o.floorOnly, "floor-only", "", false, "Measure the floor alone")
	set.Strings(&o.principalArgs, "principal-arg", "", nil, "One more flag for the principal, such as --pprof-port=6060")
	set.Strings(&o.agentArgs, "agent-arg", "", nil, "One more flag for the agent")
	err = set.Parse(args)
	if errors.Is(err, settings.ErrHelp) {
		fmt.Fprint(out, set.Help())
	}
	return o, err
}
