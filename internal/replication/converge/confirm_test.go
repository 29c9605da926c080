package converge_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/bubble"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/converge"
)

// question is one to the source's store, about a key.
type question struct {
	key    converge.Key
	uid    string
	answer chan<- answer
}

type answer struct {
	nothing bool
	err     error
}

// questions returns what asks a test, and the questions.
func questions() (func(context.Context, converge.Key, string) (bool, error), <-chan question) {
	asked := make(chan question)
	return func(ctx context.Context, k converge.Key, uid string) (bool, error) {
		answers := make(chan answer)
		select {
		case asked <- question{k, uid, answers}:
		case <-ctx.Done():
			return false, ctx.Err()
		}
		select {
		case a := <-answers:
			return a.nothing, a.err
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}, asked
}

// loseOne returns a pair of which the source's cache shows all but one of ten objects when they connect.
func loseOne(t *testing.T) (*pair, <-chan question) {
	t.Helper()
	confirm, asked := questions()
	p := equalPair(t, 10, pairOptions{confirm: confirm})
	p.disconnect()
	p.source.vanish(key(3))
	p.connect()
	return p, asked
}

// What a cache lacks that may be behind is deleted once the store has said that it is gone, and not before.
func TestDeletionThatOnlyAResyncFoundIsConfirmedFirst(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p, asked := loseOne(t)
		q := <-asked
		require.Equal(t, question{key(3), "uid3", q.answer}, q)
		synctest.Wait()
		require.True(t, p.replica.has(key(3)))
		q.answer <- answer{err: errCut}
		q = <-asked
		require.True(t, p.replica.has(key(3)))
		q.answer <- answer{nothing: true}
		p.requireEqual()
		require.False(t, p.replica.has(key(3)))
	})
}

// It was there all the time.
func TestObjectThatTheCacheLackedStays(t *testing.T) {
	for name, payload := range map[string]string{"as it is": "v3", "and changed": "other"} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				p, asked := loseOne(t)
				q := <-asked
				p.source.set(key(3), object("uid3", payload))
				q.answer <- answer{}
				p.requireEqual()
				require.Empty(t, p.replica.removed)
				p.source.drop(key(3)) // the deletion is seen: nobody is asked
				p.requireEqual()
				require.False(t, p.replica.has(key(3)))
			})
		})
	}
}

// A cache that is behind sees the deletion of an older object by the name of one that the peer has. That one stays, also if the older one's
// deletion was tried before.
func TestDeletionOfAnOlderObjectIsNotThatOfTheNewer(t *testing.T) {
	for name, seenAgain := range map[string]bool{"before the peer says what it has": false, "while the store is asked": true} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				confirm, asked := questions()
				p := newPair(t, pairOptions{confirm: confirm})
				older, newer := object("older", "v"), object("newer", "v")
				p.source.set(key(1), older)
				agent := script(t, p.left)
				reports(t, agent, 1, older.State)
				p.source.drop(key(1))
				first := receive[converge.Delete](t, agent)
				require.Equal(t, "older", first.UID)
				send(t, agent, converge.Ack{Facet: facet, Key: key(1), Seq: first.Seq, Result: converge.Result{Code: converge.Retry}})
				synctest.Wait()
				reports(t, agent, 2, newer.State)
				q := <-asked
				if seenAgain {
					p.left.Changed(facet, key(1))
				}
				pass(time.Minute / 2) // it would be tried again
				p.source.set(key(1), newer)
				q.answer <- answer{}
				synctest.Wait()
				require.Len(t, sentOf[converge.Delete](agent.pipe.left), 1)
			})
		})
	}
}

// reports has a peer say that it holds this under a key, of ten objects.
func reports(t *testing.T, agent *pipeEnd, resync uint64, held converge.State) {
	t.Helper()
	send(t, agent, converge.Digest{Facet: facet, Resync: resync, Count: 10, Buckets: map[converge.Bucket]converge.BucketDigest{converge.BucketOf(key(1)): 1}})
	request := receive[converge.BucketRequest](t, agent)
	for len(request.Buckets) == 0 { // it asked for a digest
		request = receive[converge.BucketRequest](t, agent)
	}
	for _, b := range request.Buckets {
		send(t, agent, converge.BucketEntries{Facet: facet, Resync: resync, Bucket: b, Entries: []converge.Entry{{Key: key(1), State: held}}})
	}
	synctest.Wait()
}

// The store had the object when it was asked, and then it was deleted. Nobody else tells.
func TestStoreIsAskedAgainAboutWhatWentMeanwhile(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p, asked := loseOne(t)
		(<-asked).answer <- answer{}
		began := time.Now()
		(<-asked).answer <- answer{nothing: true}
		require.Less(t, time.Since(began), time.Second)
		p.requireEqual()
		require.False(t, p.replica.has(key(3)))
	})
}

// The peer has lost the object itself meanwhile.
func TestNothingIsDeletedThatThePeerHasNoMore(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p, asked := loseOne(t)
		q := <-asked
		p.replica.drop(key(3))
		synctest.Wait()
		q.answer <- answer{nothing: true}
		p.requireEqual()
		require.Empty(t, p.replica.removed)
	})
}

// A peer says that it holds what it has made up. Each costs a question: they are asked one by one, at a rate, and another's are not delayed.
func TestQuestionsToTheStoreAreBounded(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var asked, most, now atomic.Int64
		p := newPair(t, pairOptions{confirm: func(context.Context, converge.Key, string) (bool, error) {
			asked.Add(1)
			most.Store(max(most.Load(), now.Add(1)))
			time.Sleep(time.Microsecond)
			now.Add(-1)
			return true, nil
		}})
		agent := script(t, p.left)
		const many = 3000
		claim := func(resync uint64) {
			buckets := make(map[converge.Bucket]converge.BucketDigest)
			entries := make(map[converge.Bucket][]converge.Entry)
			for i := range many {
				k := converge.Key(fmt.Sprint(resync, "-", i))
				b := converge.BucketOf(k)
				buckets[b] = 1
				entries[b] = append(entries[b], converge.Entry{Key: k, State: object("uid", "v").State})
			}
			send(t, agent, converge.Digest{Facet: facet, Resync: resync, Count: 1e6, Buckets: buckets})
			for _, b := range receive[converge.BucketRequest](t, agent).Buckets {
				send(t, agent, converge.BucketEntries{Facet: facet, Resync: resync, Bucket: b, Entries: entries[b]})
			}
		}
		began := time.Now()
		for resync := range uint64(5) {
			claim(resync + 1) // what was claimed before is forgotten
		}
		go func() {
			for {
				if _, err := agent.Recv(); err != nil {
					return
				}
			}
		}()
		pass(10 * time.Second)
		require.EqualValues(t, 1, most.Load())
		require.LessOrEqual(t, asked.Load(), int64(1000+100*(time.Since(began)/time.Second+1)))
		require.GreaterOrEqual(t, asked.Load(), int64(1900), "and it goes on")
		pass(time.Minute)
		require.Less(t, asked.Load(), int64(2*many), "of the newest claims alone, but for those that were asked about before")
	})
}
