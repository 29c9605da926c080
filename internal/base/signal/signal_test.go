package signal_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/signal"
)

func TestSignal(t *testing.T) {
	s := signal.New()
	require.Empty(t, s)
	s.Give()
	s.Give() // nobody waits
	require.Len(t, s, 1)
	<-s
	require.Empty(t, s)
	s.Give()
	require.Len(t, s, 1)
}

func TestBroadcastReachesAllWhoWait(t *testing.T) {
	t.Parallel()
	var b signal.Broadcast
	b.Give() // nobody waits
	first := b.Changed()
	require.Equal(t, first, b.Changed(), "the same one until something changes")
	select {
	case <-first:
		require.Fail(t, "nothing has changed")
	default:
	}
	b.Give()
	<-first
	<-first // and whoever else waits
	require.NotEqual(t, first, b.Changed())
}
