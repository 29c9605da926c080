package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/cmd/bench/relay"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/toolset"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/program"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/settings"
)

// options are what a person decides about a benchmark.
type options struct {
	only              []string
	applications      int
	samples           int
	changes           int
	seconds           int
	megabytes         int
	line              int
	requests          int
	runs              int
	json              string
	fleetSizes        []string
	fleetApplications int
	fleetMost         int
	fleetSeconds      int
	fleetPrincipals   []string
	fleetPerSecond    int
	floorOnly         bool
	principalArgs     []string
	agentArgs         []string
	kubeproxyArgs     []string
	redisproxyArgs    []string
}

// newCommand returns the benchmark's command. It can be one of the programs that are measured, too.
func newCommand() *cobra.Command {
	var none []string // what is measured is not left to the environment
	cmd := program.New("bench", "Measure all programs, and beside them the least that the same work can take", none, &options{},
		func(ctx context.Context, o *options, _ io.Writer) error {
			repository, err := toolset.Repository()
			if err != nil {
				return err
			}
			o.json = cmp.Or(o.json, filepath.Join(repository, "bin", "bench.json"))
			return run(ctx, *o, os.Stdout)
		})
	cmd.AddCommand(&cobra.Command{
		Use: relay.Command, Hidden: true, Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			var config net.ListenConfig
			listener, err := config.Listen(cmd.Context(), "tcp", args[0])
			if err != nil {
				return err
			}
			return relay.Serve(cmd.Context(), listener, args[1])
		},
	})
	return cmd
}

// Declare implements program.Settings.
func (o *options) Declare(set *settings.Set) {
	var names []string
	for _, s := range o.suites() {
		names = append(names, s.names...)
	}
	set.Strings(&o.only, "only", "", names, "Parts to measure", settings.Each(settings.OneOf(names...)))
	set.Int(&o.applications, "applications", "", 1000, "Applications in bulk, first-sync, status and reconnect", settings.Positive)
	set.Int(&o.samples, "samples", "", 200, "Applications in propagate, one at a time", settings.Positive)
	set.Int(&o.changes, "changes", "", 10, "Changes of each Application's status", settings.Positive)
	set.Int(&o.seconds, "seconds", "", 5, "Seconds that each loop of get, stream and agentkey goes on", settings.Positive)
	set.Int(&o.megabytes, "megabytes", "", 100, "Size of a log in stream, and of what exec brings", settings.Positive)
	set.Int(&o.line, "log-line", "", 4000, "Bytes of each line of that log: those who write it take more time for short ones", settings.Positive)
	set.Int(&o.requests, "requests", "", 100_000, "Requests of redis-benchmark with one connection; with 50, three times as many",
		settings.Positive)
	set.Int(&o.runs, "runs", "", 3, "Times to measure all but status; figures are medians", settings.Positive)
	set.Strings(&o.fleetSizes, "fleet-sizes", "", []string{"100", "1000", "10000"}, "How many agents there are in fleet, one after the other",
		settings.Each(checkCount))
	set.Int(&o.fleetApplications, "fleet-applications", "", 10, "Applications of each of them; 0 for agents without any alone")
	set.Int(&o.fleetMost, "fleet-most", "", 10_000, "Applications of all of them together: where that is less, only some agents have any", settings.Positive)
	set.Strings(&o.fleetPrincipals, "fleet-principals", "", []string{"1", "3"}, "How many principals there are in fleet, one after the other",
		settings.Each(checkCount))
	set.Int(&o.fleetPerSecond, "fleet-per-second", "", 0, "How many agents of fleet come for the first time each second; 0 for all at once", settings.NonNegative)
	set.Int(&o.fleetSeconds, "fleet-seconds", "", 30, "Seconds that are measured while nothing happens, and while statuses change",
		settings.Positive)
	set.String(&o.json, "json", "", "", "File for the figures; bin/bench.json of the repository if empty")
	set.Bool(&o.floorOnly, "floor-only", "", false, "Measure the floor alone")
	set.Strings(&o.principalArgs, "principal-arg", "", nil, "One more flag for the principal, such as --pprof-port=6060")
	set.Strings(&o.agentArgs, "agent-arg", "", nil, "One more flag for the agent")
	set.Strings(&o.kubeproxyArgs, "kubeproxy-arg", "", nil, "One more flag for the kubeproxy")
	set.Strings(&o.redisproxyArgs, "redisproxy-arg", "", nil, "One more flag for the redisproxy")
}

func checkCount(text string) error {
	if n, err := strconv.Atoi(text); err != nil || n <= 0 {
		return fmt.Errorf("%q: want a number above 0", text)
	}
	return nil
}

// counts are what checkCount has checked.
func counts(texts []string) []int {
	all := make([]int, len(texts))
	for i, text := range texts {
		all[i], _ = strconv.Atoi(text)
	}
	return all
}
