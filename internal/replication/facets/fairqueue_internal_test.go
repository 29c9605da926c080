package facets

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
)

// Whoever has ten thousand things to do is in nobody's way.
func TestGroupsOfAFairQueueTakeTurns(t *testing.T) {
	t.Parallel()
	queue := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[string]{
		Queue: newFairQueue(func(item string) string { return strings.Split(item, "-")[0] }),
	})
	for _, item := range []string{"a-1", "a-2", "a-3", "a-4", "b-1", "c-1", "c-2", "a-2"} {
		queue.Add(item)
	}
	next := func() string {
		item, _ := queue.Get()
		queue.Done(item)
		return item
	}
	require.Equal(t, 7, queue.Len())
	require.Equal(t, "a-1", next())
	require.Equal(t, "b-1", next())
	queue.Add("b-2")
	var rest []string
	for queue.Len() > 0 {
		rest = append(rest, next())
	}
	require.Equal(t, []string{"c-1", "a-2", "b-2", "c-2", "a-3", "a-4"}, rest)
}

// The conditions of applications are written for all agents at a bounded rate, of which each has its share.
func TestAgentsTakeTurnsWithTheirConditions(t *testing.T) {
	t.Parallel()
	notes := NewNotes(NotesOptions{})
	for i := range 1000 {
		notes.queue.Add(noted{agent: "large", app: types.NamespacedName{Namespace: "large", Name: fmt.Sprint(i)}})
	}
	notes.queue.Add(noted{agent: "small", app: types.NamespacedName{Namespace: "small", Name: "0"}})
	first, _ := notes.queue.Get()
	require.Equal(t, "large", first.agent)
	second, _ := notes.queue.Get()
	require.Equal(t, "small", second.agent)
	notes.queue.ShutDown()
}
