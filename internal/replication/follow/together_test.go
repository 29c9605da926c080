package follow_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Own writes, the writes of others, dropped connections and readers meet; the fixture checks that each change follows on
// the one before. In the end the store is what the server has.
func TestConcurrentWritesEndConsistent(t *testing.T) {
	t.Parallel()
	const writers, rounds, names = 6, 60, 4
	r := startStore(t, newAPIServer(t, true)).synced(t)
	r.expectNoEvents(t) // so that a dropped watch resumes at once
	var parts sync.WaitGroup
	for w := range writers {
		parts.Go(func() {
			for n := range rounds {
				r.writeAtRandom(t, fmt.Sprint("object-", (w+n)%names), fmt.Sprintf("%d.%d", w, n), w%2 == 0)
			}
		})
	}
	parts.Go(func() {
		for n := range 2 * rounds {
			if n%rounds == rounds/2 {
				r.dropWatches()
			}
			for k := range r.store.Group("east") {
				assert.Equal(t, "east", k.group)
			}
			_ = r.store.Ready()
		}
	})
	parts.Wait()
	r.create(t, "end", "end")
	for await(t, r.events) != "end: none to end" {
		continue
	}
	r.mu.Lock()
	there := r.sorted()
	r.mu.Unlock()
	east := 0
	for _, object := range there {
		k, ok := r.store.Get(id(object.Name))
		if assert.True(t, ok, object.Name) {
			assert.Equal(t, object.ResourceVersion, k.revision, object.Name)
			assert.Equal(t, object.Data["value"], k.value)
		}
		east += len(object.Labels["group"]) / len("east")
	}
	assert.Len(t, r.group("east"), east)
	for n := range names {
		name := fmt.Sprint("object-", n)
		if _, err := r.client.Get(t.Context(), name, metav1.GetOptions{}); err != nil {
			r.expectValue(t, name, "none")
		}
	}
}

// writeAtRandom creates an object, changes it if it is there, and deletes it now and then. It records own writes.
func (r *fixture) writeAtRandom(t *testing.T, name, value string, own bool) {
	t.Helper()
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"value": value}}
	if len(value)%2 == 0 {
		object.Labels = map[string]string{"group": "east"}
	}
	answer, err := r.client.Update(t.Context(), object, metav1.UpdateOptions{})
	if err != nil {
		answer, err = r.client.Create(t.Context(), object, metav1.CreateOptions{})
	}
	if err != nil || !own {
		return
	}
	k, err := r.store.RecordWrite(answer)
	if err != nil {
		t.Error(err)
		return
	}
	if value[len(value)-1] != '7' {
		return
	}
	only := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &answer.UID}}
	if r.client.Delete(t.Context(), name, only) == nil {
		r.recordDelete(k)
	}
}
