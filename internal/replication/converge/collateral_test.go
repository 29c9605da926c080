package converge_test

import (
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/bubble"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/converge"
)

// verdicts are those about source objects, by UID.
type verdicts struct {
	mu  sync.Mutex
	of  map[string]converge.Verdict
	all converge.Verdict // about those that are not in the map
}

func (v *verdicts) Of(uid string, _ bool) converge.Verdict {
	v.mu.Lock()
	defer v.mu.Unlock()
	if verdict, ok := v.of[uid]; ok {
		return verdict
	}
	return v.all
}

func (v *verdicts) Any() bool { return true }

func (v *verdicts) Release(uids []string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, uid := range uids {
		v.of[uid] = converge.Deliberate
	}
}

func (v *verdicts) decide(all converge.Verdict) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.all = all
}

// deleting is an object that describes its own deletion.
func deleting(uid string) converge.Object {
	o := object(uid, "going")
	o.Deleting = true
	return o
}

// What goes with its namespace is held, however little it is, and however it is found; what somebody deletes at the same time goes.
func TestGuardHoldsWhatWasTakenAlong(t *testing.T) {
	for name, take := range map[string]func(*pair){
		"seen to go":        func(p *pair) { p.source.drop(key(3)) },
		"found by a resync": func(p *pair) { p.lose(3, 4) },
		"going":             func(p *pair) { p.source.set(key(3), deleting("uid3")) },
		"going and then gone": func(p *pair) {
			p.source.set(key(3), deleting("uid3"))
			synctest.Wait()
			p.source.drop(key(3))
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				along := &verdicts{of: map[string]converge.Verdict{"uid3": converge.TakenAlong}}
				p := equalPair(t, 100, pairOptions{collateral: along})
				take(p)
				p.source.drop(key(4))
				synctest.Wait()
				require.False(t, p.replica.has(key(4)), "somebody deleted it")
				require.Equal(t, "uid3", p.replica.Held(key(3)).UID)
				require.Equal(t, object("uid3", "v3").Version, p.replica.Held(key(3)).Version, "it is not even told")
				for range 2 { // sessions
					paused := p.observer.pausedDeletions()
					require.Len(t, paused, 1)
					require.Equal(t, []converge.Key{key(3)}, paused[0].Keys)
					require.Equal(t, 1, paused[0].TakenAlong)
					require.Zero(t, p.observer.resumedCount())
					p.left.Resync(facet)
					synctest.Wait()
					p.disconnect()
					p.connect()
					synctest.Wait()
					require.True(t, p.replica.has(key(3)))
				}
				require.True(t, p.left.ConfirmDeletions(facet, p.observer.pausedDeletions()[0].Token))
				p.requireEqual()
				require.Equal(t, 1, p.observer.resumedCount())
			})
		})
	}
}

// What is made again was never in danger.
func TestGuardForgetsWhatWasTakenAlongAndIsBack(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		along := &verdicts{of: map[string]converge.Verdict{"uid3": converge.TakenAlong}}
		p := equalPair(t, 100, pairOptions{collateral: along})
		p.source.drop(key(3))
		synctest.Wait()
		require.Len(t, p.observer.pausedDeletions(), 1)
		p.source.set(key(3), object("uid3b", "again"))
		p.requireEqual()
		require.Equal(t, 1, p.observer.resumedCount())
		require.Empty(t, sentOf[converge.Delete](p.pipe.left))
	})
}

// While nobody knows why an object went, nothing is said of it.
func TestDeletionWaitsForVerdict(t *testing.T) {
	for name, c := range map[string]struct {
		lose  func(*pair)
		found func(*pair)
	}{
		"seen":              {func(p *pair) { p.source.drop(key(3)) }, func(p *pair) { p.left.Changed(facet, key(3)) }},
		"found by a resync": {func(p *pair) { p.lose(3, 4) }, func(p *pair) { p.left.Resync(facet) }},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				along := &verdicts{of: make(map[string]converge.Verdict), all: converge.Undecided}
				p := equalPair(t, 100, pairOptions{collateral: along})
				c.lose(p)
				synctest.Wait()
				require.True(t, p.replica.has(key(3)))
				require.Empty(t, p.observer.pausedDeletions())
				along.decide(converge.Deliberate)
				c.found(p)
				p.requireEqual()
				require.Empty(t, p.observer.pausedDeletions())
			})
		})
	}
}

// The rest of what an agent has is all that it has, when the guard holds the others.
func TestGuardHoldsTheRestWithWhatWasTakenAlong(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		along := &verdicts{of: map[string]converge.Verdict{"uid0": converge.TakenAlong, "uid1": converge.TakenAlong}}
		p := equalPair(t, 3, pairOptions{collateral: along})
		p.lose(0, 3)
		require.Len(t, p.replica.states(), 3)
		paused := p.observer.pausedDeletions()
		require.Len(t, paused, 1)
		require.Equal(t, 3, paused[0].Deletions)
		require.Equal(t, 2, paused[0].TakenAlong)
		require.True(t, p.left.ConfirmDeletions(facet, paused[0].Token))
		p.requireEqual()
	})
}

// Operators set the limits, and may turn the guard off.
func TestGuardLimitsAreSettings(t *testing.T) {
	for name, c := range map[string]struct {
		guard      converge.Guard
		held, lost int
		passes     bool
	}{
		"floor":              {converge.Guard{Floor: 2, Share: 20}, 10, 2, true},
		"above the floor":    {converge.Guard{Floor: 2, Share: 20}, 10, 3, false},
		"share":              {converge.Guard{Floor: 2, Share: 50}, 10, 5, true},
		"above the share":    {converge.Guard{Floor: 2, Share: 50}, 10, 6, false},
		"no floor, no share": {converge.Guard{}, 10, 1, false},
		"all":                {converge.Guard{Floor: 99, Share: 99}, 10, 10, false},
		"off":                {converge.Guard{Share: 100}, 10, 10, true},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				p := equalPair(t, c.held, pairOptions{guard: func() converge.Guard { return c.guard }})
				p.lose(0, c.lost)
				require.Equal(t, c.passes, len(p.observer.pausedDeletions()) == 0)
				require.Equal(t, c.passes, len(p.replica.states()) == c.held-c.lost)
			})
		})
	}
}
