package peers_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/bubble"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/peers"
)

var errSuperseded = errors.New("superseded")

// principal is one of those whose rosters a test carries to each other.
type principal struct {
	*peers.Roster
	ended atomic.Int32 // leases that were superseded
}

func newPrincipal(id string) *principal {
	return &principal{Roster: peers.NewRoster(peers.Self{ID: id}, errSuperseded)}
}

func (p *principal) hold(agent string) *peers.Lease {
	return p.Hold(peers.Session, agent, peers.About{Build: "v1", Mode: "managed"}, func(error) { p.ended.Add(1) })
}

// holder returns who holds an agent's session, as a principal sees it.
func (p *principal) holder(agent string) string {
	held, _ := p.Held(peers.Session, agent)
	return held.Principal
}

// Whatever order the news comes in, and however the clocks differ, all agree on one principal in the end: the one that the agent came
// to last, if that knew of the one before.
func TestNewestSessionWins(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		one, two := newPrincipal("one"), newPrincipal("two")
		one.hold("berlin")
		one.TellAll(two.Roster)
		require.Equal(t, "one", two.holder("berlin"))
		second := two.hold("berlin") // in the same millisecond
		two.TellAll(one.Roster)
		require.Equal(t, "two", two.holder("berlin"))
		require.Equal(t, "two", one.holder("berlin"))
		require.EqualValues(t, 1, one.ended.Load())
		require.Zero(t, two.ended.Load())

		one.TellAll(two.Roster) // late news
		require.Zero(t, two.ended.Load())
		<-time.After(time.Second)   // of a clock that is not the real one
		third := one.hold("berlin") // and back
		one.TellAll(two.Roster)
		require.Equal(t, "one", two.holder("berlin"))
		require.EqualValues(t, 1, two.ended.Load())
		second.Release()
		third.Release()
		two.TellAll(one.Roster)
		one.TellAll(two.Roster)
		require.Empty(t, one.holder("berlin"))
		require.Empty(t, two.holder("berlin"))
	})
}

// Two that did not know of each other hold the same agent in the same millisecond: both decide alike.
func TestTieIsDecidedAlike(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		one, two := newPrincipal("one"), newPrincipal("two")
		one.hold("berlin")
		two.hold("berlin")
		one.TellAll(two.Roster)
		two.TellAll(one.Roster)
		require.Equal(t, "two", one.holder("berlin"))
		require.Equal(t, "two", two.holder("berlin"))
		require.EqualValues(t, 1, one.ended.Load())
		require.Zero(t, two.ended.Load())
	})
}

// An older lease that ends late takes nothing from a newer one.
func TestOlderLeaseReleasesNothing(t *testing.T) {
	t.Parallel()
	one := newPrincipal("one")
	older, newer := one.hold("berlin"), one.hold("berlin")
	older.Release()
	require.Equal(t, "one", one.holder("berlin"))
	newer.Release()
	require.Empty(t, one.holder("berlin"))
}

// What each of them would write, one writes.
func TestOnePrincipalLeads(t *testing.T) {
	t.Parallel()
	one, two := newPrincipal("one"), newPrincipal("two")
	require.True(t, one.Leads("berlin"), "nobody else is known")
	one.TellAll(two.Roster)
	two.TellAll(one.Roster)
	require.True(t, one.Leads("berlin"))
	require.False(t, two.Leads("berlin"))
	two.hold("berlin")
	two.TellAll(one.Roster)
	require.False(t, one.Leads("berlin"))
	require.True(t, two.Leads("berlin"))
	one.Forget("two")
	require.True(t, one.Leads("berlin"), "it does not reach the other")
	require.Empty(t, one.holder("berlin"))
}

func TestListenersLearnOfEachChange(t *testing.T) {
	t.Parallel()
	one, two := newPrincipal("one"), newPrincipal("two")
	var heard []string
	two.Subscribe(func(kind peers.Kind, agent string) { heard = append(heard, kind.String()+" "+agent) })
	lease := one.hold("berlin")
	one.TellAll(two.Roster)
	require.ElementsMatch(t, []string{"KIND_SESSION berlin", "KIND_SESSION "}, heard)
	heard = nil
	lease.Release()
	one.TellAll(two.Roster)
	require.Contains(t, heard, "KIND_SESSION berlin")
}

// Another principal is one of ours, or has become somebody else's.
func TestWhatAPeerSaysIsChecked(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		held peers.Said
		want string
	}{
		"an epoch that rules for years": {peers.Said{Agent: "berlin", Epoch: uint64(time.Now().Add(2 * time.Hour).UnixMilli())}, "compare the clocks"},
		"the last epoch that there is":  {peers.Said{Agent: "berlin", Epoch: 1<<64 - 1}, "compare the clocks"},
		"no name":                       {peers.Said{Agent: "Berlin/..", Epoch: 1}, "agent that cannot be"},
		"a clock that is behind":        {peers.Said{Agent: "berlin", Epoch: 1}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := peers.Decode(c.held)
			if c.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, c.want)
		})
	}
}

func TestParseAddresses(t *testing.T) {
	t.Parallel()
	for text, some := range map[string]bool{"": false, "service:principals": true, "dns:hub:8443": true, "a:1, b:2": true, "[::1]:8443": true} {
		a, err := peers.ParseAddresses(text)
		require.NoError(t, err, text)
		require.Equal(t, some, a.Any(), text)
	}
	for _, text := range []string{"hub", "dns:hub", "dns::8443", "service:", "service:A b", "a:1,", "a:0", "a:65536", "https://a:1"} {
		_, err := peers.ParseAddresses(text)
		require.Error(t, err, text)
	}
}
