package doctor_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/checks"
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
