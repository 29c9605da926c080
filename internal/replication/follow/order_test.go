package follow_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/follow"
)

// The change of an AppProject concerns every agent. Meanwhile others can be written.
func TestSlowListenerDoesNotBlockWritesOfOtherObjects(t *testing.T) {
	t.Parallel()
	begun, finish := make(chan struct{}), make(chan struct{})
	written := make(chan string, 1)
	s := follow.New(follow.Options[*corev1.ConfigMap, *kept]{
		Kind: &corev1.ConfigMap{}, Reduce: reduce,
		Changed: func(_, now *kept) {
			if now.id.Name != "slow" {
				return
			}
			close(begun)
			<-finish
		},
	})
	write := func(name string, revision int) {
		_, err := s.RecordWrite(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, ResourceVersion: fmt.Sprint(revision)}})
		if err != nil {
			t.Error(err)
		}
	}
	var writers sync.WaitGroup
	writers.Go(func() { write("slow", 1) })
	await(t, begun)
	for n := range 100 { // of which nearly all have other locks than the slow one
		writers.Go(func() {
			write(fmt.Sprint("other-", n), n+2)
			select {
			case written <- fmt.Sprint("other-", n):
			default:
			}
		})
	}
	name := await(t, written)
	_, ok := s.Get(id(name))
	require.True(t, ok)
	close(finish)
	writers.Wait()
}
