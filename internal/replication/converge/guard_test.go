package converge_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/bubble"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/converge"
)

// lose makes the source forget keys as a new list does, and has the facet compared.
func (p *pair) lose(from, to int) {
	for i := from; i < to; i++ {
		p.source.vanish(key(i))
	}
	p.left.Resync(facet)
	synctest.Wait()
}

// equalPair returns a connected pair of which both sides hold n objects.
func equalPair(t *testing.T, n int, s pairOptions) *pair {
	t.Helper()
	p := newPair(t, s)
	p.source.fill(n)
	p.replica.fill(n)
	p.connect()
	p.requireEqual()
	return p
}

func TestGuardPausesDeletionsAndReportsOnce(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := equalPair(t, 100, pairOptions{resyncEvery: time.Minute})
		p.lose(0, 30)
		pass(time.Hour) // and many resyncs
		require.Len(t, p.replica.states(), 100)
		require.Len(t, p.observer.pausedDeletions(), 1)
		b := p.observer.pausedDeletions()[0]
		require.Equal(t, converge.PausedDeletions{Facet: facet, Deletions: 30, Total: 100, Keys: b.Keys, Token: b.Token}, b)
		require.Len(t, b.Keys, 30)
		require.Equal(t, key(29), b.Keys[29])
		require.NotEmpty(t, b.Token)
		require.Zero(t, p.observer.resumedCount())
	})
}

// Paused deletions outlive a connection and are reported once. Whichever session finds nothing to pause resumes them.
func TestPausedDeletionsOutliveTheSession(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := equalPair(t, 100, pairOptions{})
		p.lose(0, 30)
		for round := range 3 {
			require.Equal(t, round+1, p.observer.comparedCount())
			p.disconnect()
			p.connect()
			synctest.Wait()
			require.Len(t, p.replica.states(), 100)
			require.Len(t, p.observer.pausedDeletions(), 1, "the token depends on nothing but the deletions")
			require.Zero(t, p.observer.resumedCount())
		}
		p.disconnect()
		p.source.fill(100)
		p.connect()
		synctest.Wait()
		require.Equal(t, 1, p.observer.resumedCount())
		p.requireEqual()
	})
}

func TestConfirmationTokenResumesDeletions(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := equalPair(t, 100, pairOptions{})
		p.lose(0, 30)
		token := p.observer.pausedDeletions()[0].Token
		require.False(t, p.left.ConfirmDeletions(facet, "another"))
		require.False(t, p.left.ConfirmDeletions(facet, ""))
		require.False(t, p.left.ConfirmDeletions("other", token))
		require.False(t, p.right.ConfirmDeletions(facet, token), "only the source deletes")
		synctest.Wait()
		require.Len(t, p.replica.states(), 100)

		require.True(t, p.left.ConfirmDeletions(facet, token))
		p.requireEqual()
		require.Len(t, p.replica.states(), 70)
		require.Equal(t, 1, p.observer.resumedCount())
		require.False(t, p.left.ConfirmDeletions(facet, token), "there is nothing to confirm any more")
	})
}

func TestConfirmationTokenAllowsTheseDeletionsOnly(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := equalPair(t, 100, pairOptions{})
		p.lose(0, 30)
		p.lose(30, 31)
		paused := p.observer.pausedDeletions()
		require.Len(t, paused, 2)
		require.NotEqual(t, paused[0].Token, paused[1].Token)
		require.False(t, p.left.ConfirmDeletions(facet, paused[0].Token), "it was for thirty objects, not these")
		synctest.Wait()
		require.Len(t, p.replica.states(), 100)
		require.True(t, p.left.ConfirmDeletions(facet, paused[1].Token))
		p.requireEqual()

		// A token that was confirmed stays good for the same deletions, and for no others.
		p.lose(31, 61)
		require.Len(t, p.observer.pausedDeletions(), 3)
		require.Len(t, p.replica.states(), 69)
	})
}

func TestGuardResumesWhenTheObjectsReturn(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := equalPair(t, 100, pairOptions{})
		p.lose(0, 30)
		token := p.observer.pausedDeletions()[0].Token
		p.source.fill(100)
		p.left.Resync(facet)
		p.requireEqual()
		require.Len(t, p.replica.states(), 100)
		require.Equal(t, 1, p.observer.resumedCount())
		require.False(t, p.left.ConfirmDeletions(facet, token))
		require.Empty(t, sentOf[converge.Delete](p.pipe.left))
	})
}

func TestGuardAllowsFewDeletions(t *testing.T) {
	for _, c := range []struct {
		held, lost int
		passes     bool
	}{
		{1, 1, false}, // all
		{10, 10, false},
		{2, 1, true},
		{11, 10, true},
		{11, 11, false},
		{55, 11, true}, // a fifth
		{54, 11, false},
		{100, 20, true},
		{100, 21, false},
		{1000, 200, true},
	} {
		t.Run("", func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				p := equalPair(t, c.held, pairOptions{})
				p.lose(0, c.lost)
				if c.passes {
					p.requireEqual()
					require.Empty(t, p.observer.pausedDeletions())
				} else {
					require.Len(t, p.replica.states(), c.held)
					require.Len(t, p.observer.pausedDeletions(), 1)
				}
			})
		})
	}
}

func TestGuardIgnoresObservedDeletions(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := equalPair(t, 100, pairOptions{})
		for i := range 90 {
			p.source.drop(key(i))
		}
		p.requireEqual()
		require.Empty(t, p.observer.pausedDeletions())
	})
}

func TestGuardIgnoresExemptFacets(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := equalPair(t, 100, pairOptions{guardExempt: true})
		p.lose(0, 100)
		p.requireEqual()
		require.Empty(t, p.observer.pausedDeletions())
	})
}

// below is a decision about the first keys, of which the objects are still there.
func below(n int) func(converge.Key, string) bool {
	return func(k converge.Key, uid string) bool {
		return k < key(n) && uid == "uid"+strings.TrimLeft(string(k), "k0")
	}
}

func TestGuardIgnoresRevokedAccess(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := equalPair(t, 100, pairOptions{accessRevoked: below(100)})
		p.lose(1, 90)
		p.requireEqual()
		require.Empty(t, p.observer.pausedDeletions())
		for _, d := range sentOf[converge.Delete](p.pipe.left) {
			require.True(t, below(100)(d.Key, d.UID), "it is deleted by its UID")
		}
	})
}

// Deletions after revoked access neither let others through, nor are paused with them.
func TestGuardDoesNotCountRevokedAccess(t *testing.T) {
	for gone, passes := range map[int]bool{10: true, 11: false} {
		t.Run(fmt.Sprint(gone), func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				p := equalPair(t, 100, pairOptions{accessRevoked: below(51)})
				p.lose(1, 51+gone) // of fifty that are left, eleven are more than a fifth; of a hundred, they are not
				if passes {
					p.requireEqual()
					require.Empty(t, p.observer.pausedDeletions())
					return
				}
				require.Len(t, p.replica.states(), 50)
				require.False(t, p.replica.has(key(50)))
				require.True(t, p.replica.has(key(51)))
				paused := p.observer.pausedDeletions()
				require.Equal(t, []converge.PausedDeletions{{Facet: facet, Deletions: 11, Total: 50, Keys: paused[0].Keys, Token: paused[0].Token}}, paused)
				p.left.Resync(facet)
				synctest.Wait()
				require.Equal(t, paused, p.observer.pausedDeletions(), "the token is for what is gone alone")
				require.True(t, p.left.ConfirmDeletions(facet, paused[0].Token))
				p.requireEqual()
			})
		})
	}
}

// What lies under the key of an object that is there, and came from another, is there without access being revoked.
func TestGuardPausesDeletionsOfReplicasOfOtherObjects(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := newPair(t, pairOptions{accessRevoked: below(100)})
		for i := range 20 {
			p.replica.set(key(i), object("another", "old"))
		}
		p.connect()
		synctest.Wait()
		require.Len(t, p.replica.states(), 20)
		require.Len(t, p.observer.pausedDeletions(), 1)
	})
}

func TestGuardPausesNothingButDeletions(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := equalPair(t, 100, pairOptions{})
		p.lose(0, 30)
		p.source.set(key(50), object("uid50", "newer"))
		p.source.set(key(100), object("uid100", "new"))
		p.source.drop(key(60))
		synctest.Wait()
		require.Equal(t, p.source.Held(key(50)), p.replica.Held(key(50)))
		require.True(t, p.replica.has(key(100)))
		require.False(t, p.replica.has(key(60)), "this one was seen to be deleted")
		require.True(t, p.replica.has(key(0)))
	})
}

// A paused deletion must not slip past the guard because it is touched on the replica's side.
func TestGuardPausesDeletionsOfReplicasThatChange(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := equalPair(t, 100, pairOptions{})
		p.lose(0, 30)
		p.replica.set(key(3), object("uid3", "edited"))
		synctest.Wait()
		require.True(t, p.replica.has(key(3)))

		// It is let go with the others.
		require.True(t, p.left.ConfirmDeletions(facet, p.observer.pausedDeletions()[0].Token))
		p.requireEqual()
	})
}

// Somebody who re-creates an object whose deletion is paused, and then deletes it, wants it gone.
func TestGuardForgetsWhatTheSourceHasAgain(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := equalPair(t, 100, pairOptions{})
		p.lose(0, 30)
		p.source.set(key(3), object("uid3b", "again"))
		synctest.Wait()
		require.Equal(t, "uid3b", p.replica.Held(key(3)).UID)
		p.source.drop(key(3))
		synctest.Wait()
		require.False(t, p.replica.has(key(3)))
		require.True(t, p.replica.has(key(4)))
	})
}

// A resync in the middle of many deletions that somebody asked for must neither stop them nor cry wolf.
func TestGuardIgnoresDeletionsUnderWay(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := equalPair(t, 1000, pairOptions{})
		p.replica.remove = pausing(time.Second)
		for i := range 1000 {
			p.source.drop(key(i))
		}
		p.left.Resync(facet)
		pass(5 * time.Minute)
		p.requireEqual()
		require.Empty(t, p.observer.pausedDeletions())
	})
}

// What a resync deletes, it deletes by the UID that it found: what came since from another source object is spared.
func TestResyncDeletesByUID(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := equalPair(t, 100, pairOptions{})
		p.lose(7, 8)
		p.requireEqual()
		deletes := sentOf[converge.Delete](p.pipe.left)
		require.Len(t, deletes, 1)
		require.Equal(t, "uid7", deletes[0].UID)
	})
}

// A replica that has just started tells what it holds as fast as it can. To a source that is empty by accident that must
// not be a list of what to delete.
func TestGuardPausesDeletionsThatReplicaChangedReports(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := newPair(t, pairOptions{})
		p.replica.fill(100)
		p.connect()
		for i := range 100 {
			p.right.Changed(facet, key(i))
		}
		synctest.Wait()
		for i := range 100 {
			p.replica.set(key(i), object(p.replica.Held(key(i)).UID, "edited"))
		}
		synctest.Wait()
		require.Len(t, p.replica.states(), 100)
		require.NotEmpty(t, p.observer.pausedDeletions())
	})
}

// Objects that vanish while they wait to be sent again are not deleted for having waited.
func TestGuardPausesObjectsThatVanishWhileRetried(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := equalPair(t, 100, pairOptions{})
		p.replica.apply = func(context.Context, converge.Key, converge.Object) error { return errNotNow }
		for i := range 100 {
			p.source.set(key(i), object(fmt.Sprint("uid", i), "newer"))
		}
		synctest.Wait()
		p.lose(0, 100)
		pass(time.Hour)
		require.Len(t, p.replica.states(), 100)
		require.NotEmpty(t, p.observer.pausedDeletions())
	})
}

// What the source does not know of is deleted, once a resync has found it, although only a ReplicaChanged reported it.
func TestObjectUnknownToTheSourceIsDeleted(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := equalPair(t, 100, pairOptions{})
		p.replica.set(key(1000), object("a stranger's", "unknown"))
		p.requireEqual()
		p.replica.set(key(1001), object("a stranger's", "unknown"))
		p.requireEqual()
	})
}

// A token covers its deletions also when they do not work at once.
func TestConfirmationSurvivesAFailedDeletion(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := equalPair(t, 100, pairOptions{})
		p.replica.remove = func(context.Context, converge.Key) error { return errInvalid }
		p.lose(0, 30)
		require.True(t, p.left.ConfirmDeletions(facet, p.observer.pausedDeletions()[0].Token))
		synctest.Wait()
		require.Len(t, p.replica.states(), 100)
		p.replica.heal()
		p.left.Resync(facet)
		p.requireEqual()
		require.Len(t, p.observer.pausedDeletions(), 1)
	})
}

// What vanished while it waited is found by a resync that the source asks for by itself.
func TestObjectThatVanishesMeanwhileIsResynced(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := equalPair(t, 100, pairOptions{})
		p.replica.apply = func(context.Context, converge.Key, converge.Object) error { return errNotNow }
		p.source.set(key(1), object("uid1", "newer"))
		synctest.Wait()
		p.source.vanish(key(1))
		pass(time.Minute)
		p.requireEqual()
	})
}

// Objects that were deleted once confirm no deletion of what comes to lie under their keys later.
func TestGuardPausesUnknownObjectsUnderDeletedKeys(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := equalPair(t, 100, pairOptions{})
		for i := range 30 {
			p.source.drop(key(i))
		}
		p.requireEqual()
		for i := range 30 {
			p.replica.set(key(i), object("a stranger's", "unknown"))
		}
		synctest.Wait()
		require.Len(t, p.replica.states(), 100)
		require.NotEmpty(t, p.observer.pausedDeletions())
	})
}

// Answers to a resync that another has replaced are not taken for answers to that.
func TestAnswersToAnOlderResyncAreIgnored(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		source := newMemoryStore()
		source.fill(1)
		peer := runPeer(t, converge.Options{
			Sources: map[converge.Facet]converge.SourceConfig{facet: {Source: source}}, Observer: newRecordingObserver(),
		})
		end := script(t, peer)
		send(t, end, converge.Digest{Facet: facet, Resync: 1})
		b := receive[converge.BucketRequest](t, end).Buckets[0]
		send(t, end, converge.Digest{Facet: facet, Resync: 2})
		require.Equal(t, uint64(2), receive[converge.BucketRequest](t, end).Resync)
		send(t, end, converge.BucketEntries{Facet: facet, Resync: 1, Bucket: b})
		require.Empty(t, drain(t, end))
		send(t, end, converge.BucketEntries{Facet: facet, Resync: 2, Bucket: b})
		require.Len(t, drain(t, end), 1)
	})
}
