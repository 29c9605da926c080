package policy_test

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/watch"
)

const (
	waitFor = 2 * time.Minute
	tick    = 10 * time.Millisecond

	metricsOnly  = "rules: [{nonResourceURLs: [/metrics], verbs: [get]}]"
	nothingAtAll = "applications: false"
)

func (f *following) allows(t *testing.T, target string) bool {
	t.Helper()
	d, err := ask(t, f.policy, "GET", target, "")
	require.NoError(t, err)
	return d.Allowed
}

func (f *following) rejected(t *testing.T) float64 {
	t.Helper()
	families, err := f.registry.Gather()
	require.NoError(t, err)
	for _, family := range families {
		if family.GetName() == "argocd_agent_policy_rejected_total" {
			return family.GetMetric()[0].GetCounter().GetValue()
		}
	}
	t.Fatal("no such metric")
	return 0
}

func TestPolicyConfigMapIsReloaded(t *testing.T) {
	server := newAPIServer(t, nil)
	f := follows(t, server, known())
	require.False(t, f.allows(t, "/metrics"))
	require.True(t, f.allows(t, "/version"))

	server.changes <- change{watch.Added, configMap("20", metricsOnly)}
	require.Contains(t, <-f.lines, "Loaded policy")
	require.Eventually(t, func() bool { return f.allows(t, "/metrics") }, waitFor, tick)
	require.True(t, f.allows(t, "/version"))

	server.changes <- change{watch.Modified, configMap("21", nothingAtAll)}
	require.Contains(t, <-f.lines, "Loaded policy")
	require.Eventually(t, func() bool { return !f.allows(t, "/metrics") && !f.allows(t, "/version") }, waitFor, tick)

	// An invalid policy allows nothing, and is logged and counted.
	server.changes <- change{watch.Modified, configMap("22", metricsOnly)}
	require.Contains(t, <-f.lines, "Loaded policy")
	require.Eventually(t, func() bool { return f.allows(t, "/metrics") }, waitFor, tick)
	server.changes <- change{watch.Modified, configMap("23", "rules: [{verb: [get]}]")}
	line := <-f.lines
	require.Contains(t, line, "level=ERROR")
	require.Contains(t, line, `rules[0].verb`)
	require.Eventually(t, func() bool { return !f.allows(t, "/metrics") }, waitFor, tick)
	require.False(t, f.allows(t, "/version"))
	require.Equal(t, 1.0, f.rejected(t))

	server.changes <- change{watch.Deleted, configMap("24", "rules: [{verb: [get]}]")}
	require.Contains(t, <-f.lines, "Policy ConfigMap not found any more")
	require.Eventually(t, func() bool { return f.allows(t, "/version") }, waitFor, tick)
	problems, err := testutil.GatherAndLint(f.registry)
	require.NoError(t, err)
	require.Empty(t, problems)
}

// It may have been stricter than the default rule when it was valid.
func TestInvalidPolicyAtStartupAllowsNothing(t *testing.T) {
	broken := configMap("5", "applications: true\nunknown: 1")
	f := newFollowing(t, newAPIServer(t, broken), known())
	require.Contains(t, <-f.lines, "the hub is allowed nothing")
	require.Eventually(t, func() bool { return f.policy.Ready() == nil }, waitFor, tick)
	for _, target := range []string{"/version", "/metrics", "/api/v1/namespaces/a/pods/web-1"} {
		d, err := ask(t, f.policy, "GET", target, "")
		require.NoError(t, err)
		require.False(t, d.Allowed)
		require.Contains(t, d.Reason, "the policy is invalid")
	}

	empty := configMap("5", "")
	empty.Data = map[string]string{"policy.yml": nothingAtAll}
	f = newFollowing(t, newAPIServer(t, empty), known())
	require.Contains(t, <-f.lines, "it has no key policy.yaml")
}

// The policy may deny anything.
func TestNothingIsAllowedBeforeThePolicyIsLoaded(t *testing.T) {
	server := newAPIServer(t, nil)
	server.denied = true
	f := newFollowing(t, server, known())
	_, err := ask(t, f.policy, "GET", "/version", "")
	require.ErrorContains(t, err, "the policy is not known yet")
	require.Eventually(t, func() bool {
		_, err = ask(t, f.policy, "GET", "/version", "")
		return err != nil && strings.Contains(err.Error(), "configmaps is forbidden")
	}, waitFor, tick)
}

func TestEachChangeOfThePolicyIsReported(t *testing.T) {
	server := newAPIServer(t, nil)
	f := follows(t, server, known())
	for _, c := range []change{
		{watch.Added, configMap("20", metricsOnly)}, {watch.Modified, configMap("21", "broken")}, {watch.Modified, configMap("22", nothingAtAll)},
		{watch.Deleted, configMap("23", nothingAtAll)},
	} {
		changed := f.policy.Changed()
		server.changes <- c
		<-changed
	}
	changed := f.policy.Changed()
	f.policy.DecideAgain()
	<-changed
}
