package converge_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/bubble"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/converge"
)

var errInvalid = fmt.Errorf("%w: it has no name", converge.ErrRefused)

func TestRefusalIsReportedToTheSource(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := equalPair(t, 3, pairOptions{})
		p.replica.apply = failing(errInvalid, key(1))
		p.source.set(key(1), object("uid1", "bad"))
		synctest.Wait()
		require.Equal(t, []converge.Result{{Code: converge.Refused, Reason: "it has no name"}}, p.source.resultsOf(key(1)))
		require.Equal(t, 1, p.observer.acks[converge.Refused])
		require.Zero(t, p.left.Backlog(facet))
	})
}

// Users read the reason behind words that say that something was refused.
func TestReasonOfARefusalIsOneSentence(t *testing.T) {
	for want, err := range map[string]error{
		"it has no name":                            errInvalid,
		"there is no namespace: create it":          fmt.Errorf("there is no namespace: %w: create it", converge.ErrRefused),
		"decode: it has no name":                    fmt.Errorf("decode: %w: %w", converge.ErrRefused, errInvalid),
		"a webhook said: connection refused: later": fmt.Errorf("%w: a webhook said: connection refused: later", converge.ErrRefused),
	} {
		t.Run(want, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				p := equalPair(t, 1, pairOptions{})
				p.replica.apply = failing(err, key(0))
				p.source.set(key(0), object("uid1", "bad"))
				synctest.Wait()
				require.Equal(t, []converge.Result{{Code: converge.Refused, Reason: want}}, p.source.resultsOf(key(0)))
			})
		})
	}
}

// A source that has nothing left under a key has nowhere to show that its deletion is refused. The replica's side reports it.
func TestRefusedDeletionIsReportedWhereTheObjectIs(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := equalPair(t, 3, pairOptions{})
		p.replica.remove = func(context.Context, converge.Key) error { return errInvalid }
		p.source.drop(key(1))
		synctest.Wait()
		require.Equal(t, []converge.Result{{Code: converge.Refused, Reason: "it has no name"}}, p.observer.kept)
		require.Empty(t, p.observer.removed)
		require.NotZero(t, p.replica.Held(key(1)))
	})
}

func TestRefusedObjectIsNotSentAgain(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := equalPair(t, 3, pairOptions{})
		p.replica.apply = failing(errInvalid, key(1))
		p.source.set(key(1), object("uid1", "bad"))
		p.left.Changed(facet, key(1)) // and an event that changes nothing
		pass(time.Hour)
		p.left.Changed(facet, key(1))
		synctest.Wait()
		require.Len(t, p.replica.appliedAt(key(1)), 1)

		// Until it changes.
		p.replica.heal()
		p.source.set(key(1), object("uid1", "good"))
		p.requireEqual()
		require.Equal(t, converge.Done, p.source.resultsOf(key(1))[1].Code)
	})
}

func TestRefusedObjectIsRetriedByAResync(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := equalPair(t, 3, pairOptions{})
		p.replica.apply = failing(errInvalid, key(1))
		p.source.set(key(1), object("uid1", "bad"))
		synctest.Wait()
		p.left.Resync(facet)
		synctest.Wait()
		require.Len(t, p.replica.appliedAt(key(1)), 2)
		p.replica.heal() // somebody allowed it
		p.left.Resync(facet)
		p.requireEqual()
	})
}

func TestRefusedObjectIsRetriedByTheNextSession(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := equalPair(t, 3, pairOptions{})
		p.replica.apply = failing(errInvalid, key(1))
		p.source.set(key(1), object("uid1", "bad"))
		synctest.Wait()
		p.disconnect()
		p.replica.heal()
		p.connect()
		p.requireEqual()
	})
}

func TestRefusalBlocksNoOtherKey(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := newPair(t, pairOptions{})
		var bad []converge.Key
		for i := range 2000 {
			if i%2 == 0 {
				bad = append(bad, key(i))
			}
		}
		p.replica.apply = failing(errInvalid, bad...)
		p.source.fill(2000)
		p.connect()
		synctest.Wait()
		require.Len(t, p.replica.states(), 1000)
		require.Zero(t, p.left.Backlog(facet))
	})
}

// A deletion may be refused too. It is not sent again either, until a resync.
func TestRefusedDeletion(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := equalPair(t, 100, pairOptions{})
		p.replica.remove = func(context.Context, converge.Key) error { return errInvalid }
		p.source.drop(key(1))
		pass(time.Hour)
		require.Len(t, p.replica.removed[key(1)], 1)
		require.Equal(t, converge.Refused, p.source.resultsOf(key(1))[0].Code)
		p.replica.heal()
		p.left.Resync(facet)
		p.requireEqual()
	})
}
