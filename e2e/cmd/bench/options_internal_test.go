package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/settings/settingstest"
)

// known are the parts of all suites, each of which only one suite has.
func known(t *testing.T, o options) map[string]bool {
	t.Helper()
	names := make(map[string]bool)
	for _, s := range o.suites() {
		for _, name := range s.names {
			require.False(t, names[name], "%s is in two suites", name)
			names[name] = true
		}
	}
	return names
}

func TestWithoutFlagsEverythingIsMeasured(t *testing.T) {
	o := &options{}
	err := settingstest.Parse(o.Declare, nil)
	require.NoError(t, err)
	require.Len(t, known(t, *o), len(o.only))
	for _, s := range o.suites() {
		require.Len(t, s.wanted(o.only), len(s.names))
	}
}

// A lab takes a while to start, and CPU while it runs: there is none that nobody needs.
func TestOnlySuitesThatAreAskedForHaveALab(t *testing.T) {
	o := &options{}
	err := settingstest.Parse(o.Declare, nil, "--only", "redis,footprint")
	require.NoError(t, err)
	var wanted []map[string]bool
	for _, s := range o.suites() {
		wanted = append(wanted, s.wanted(o.only))
	}
	require.Equal(t, []map[string]bool{{}, {"redis": true, "footprint": true}, {}}, wanted)
}

func TestInvalidFlagsAreRefused(t *testing.T) {
	for flag, want := range map[string]string{
		"--only=teapot": "propagate", "--seconds=0": "seconds", "--megabytes=-1": "megabytes", "--requests=few": "requests",
		"--fleet-sizes=100,many": "want a number above 0",
	} {
		err := settingstest.Parse(new(options).Declare, nil, flag)
		require.ErrorContains(t, err, want, flag)
	}
}

func TestTargetsAreThoseOfParts(t *testing.T) {
	for _, s := range (options{fleetSizes: []string{"1"}}).suites() {
		require.NotEmpty(t, s.targets)
		for _, target := range s.targets {
			require.Contains(t, s.names, target.Part, target.Figure)
		}
	}
}
