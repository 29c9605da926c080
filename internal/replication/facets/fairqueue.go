package facets

import "k8s.io/client-go/util/workqueue"

// fairQueue is the order of a work queue whose items belong to groups: the groups take turns, and within a group who came first goes
// first. However much one has to do, another's next item waits for one of each group only. A queue's own goroutines call it one at a
// time, as workqueue.Queue says.
type fairQueue[T comparable] struct {
	group func(T) string
	turns []string       // groups that have items, in the order of their turns
	items map[string][]T // by group
	size  int
}

var _ workqueue.Queue[int] = &fairQueue[int]{}

func newFairQueue[T comparable](group func(T) string) *fairQueue[T] {
	return &fairQueue[T]{group: group, items: make(map[string][]T)}
}

// Touch implements workqueue.Queue.
func (q *fairQueue[T]) Touch(T) {}

// Push implements workqueue.Queue.
func (q *fairQueue[T]) Push(item T) {
	g := q.group(item)
	if len(q.items[g]) == 0 {
		q.turns = append(q.turns, g)
	}
	q.items[g] = append(q.items[g], item)
	q.size++
}

// Len implements workqueue.Queue.
func (q *fairQueue[T]) Len() int { return q.size }

// Pop implements workqueue.Queue.
func (q *fairQueue[T]) Pop() T {
	g := q.turns[0]
	q.turns = q.turns[1:]
	item, rest := q.items[g][0], q.items[g][1:]
	if len(rest) == 0 {
		delete(q.items, g)
	} else {
		q.items[g] = rest
		q.turns = append(q.turns, g)
	}
	q.size--
	return item
}
