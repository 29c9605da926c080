package doctor_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/checks"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/cluster"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/doctor"
)

// What comes later fails because of what comes first.
func TestFirstHopThatFailsIsTheOneToMend(t *testing.T) {
	t.Parallel()
	require.Nil(t, doctor.First(nil))
	all := []checks.Check{checks.Of("DNS", "found"), checks.Skip("TLS", "no certificate"), checks.Of("TCP", "", "refused"), checks.Of("stream", "", "away")}
	require.Equal(t, "TCP", doctor.First(all).Name)
	require.Equal(t, 2, checks.Count(all))
	require.Nil(t, doctor.First(all[:2]), "what was not looked at has not failed")
}

// Without a cluster there is nothing to ask, and nothing fails for it.
func TestWhatCannotBeLookedAtIsSkipped(t *testing.T) {
	t.Parallel()
	told := 0
	all := doctor.Examine(t.Context(), doctor.Options{Agent: "berlin"}, func(checks.Check) { told++ })
	require.Len(t, all, told)
	for _, c := range all {
		require.Equal(t, checks.Skipped, c.Result, c.Name)
		require.NotEmpty(t, c.Detail)
	}
}

func TestPrincipalThatIsNotThereIsNamedByItsHop(t *testing.T) {
	t.Parallel()
	for address, hop := range map[string]string{"127.0.0.1:1": "TCP to the principal", "nowhere.invalid:443": "DNS to the principal", "nowhere": "DNS to the principal"} {
		all := doctor.Examine(t.Context(), doctor.Options{Agent: "berlin", PrincipalAddress: address}, func(checks.Check) {})
		require.Equal(t, hop, doctor.First(all).Name, address)
		require.NotEmpty(t, doctor.First(all).Problems)
	}
}

// That an API server is not there is said once, and not by each hop that asks it.
func TestClusterThatIsNotReachedIsAskedForNothingMore(t *testing.T) {
	t.Parallel()
	gone := at(t, "http://127.0.0.1:1")
	for name, o := range map[string]doctor.Options{"hub": {Hub: gone}, "spoke": {Spoke: gone}, "both": {Hub: gone, Spoke: gone}} {
		o.Agent = "berlin"
		all := doctor.Examine(t.Context(), o, func(checks.Check) {})
		for _, c := range all {
			if !strings.HasPrefix(c.Name, "API server of ") {
				require.Equal(t, checks.Skipped, c.Result, "%s: %s", name, c.Name)
			}
		}
		require.Contains(t, doctor.First(all).Problems[0], "cannot be asked", name)
	}
	all := doctor.ExamineAll(t.Context(), doctor.Options{Hub: gone}, nil, func([]checks.Check) {})
	require.Len(t, all, 1)
	all = doctor.ExamineAll(t.Context(), doctor.Options{}, map[string]*cluster.Client{"tokyo": gone, "berlin": gone}, func([]checks.Check) {})
	require.Equal(t, "berlin", all[0].Agent, "in the order of their names")
	require.Equal(t, checks.Failed, doctor.Summary(all).Result)
}

// A line for an agent says how many hops work, and none works where all were skipped.
func TestSummaryOfAnAgent(t *testing.T) {
	t.Parallel()
	of := func(all ...checks.Check) checks.Check {
		for i := range all {
			all[i].Agent = "berlin"
		}
		return doctor.Summary(all)
	}
	works, skipped, fails := checks.Of("TCP", "found"), checks.Skip("TLS", "no certificate"), checks.Of("stream", "", "away")
	require.Equal(t, checks.Of("agent berlin", "hops that work: 1, that were not looked at: 1"), of(works, skipped))
	require.Equal(t, checks.Skipped, of(skipped, skipped).Result)
	require.Equal(t, "stream", of(works, skipped, fails).Name)
}
