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
