package tunnel_test

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/tunnel/tunneltest"
)

// An agent that lost its principal connects again, also when a conversation has said what nobody read.
func TestLossIsNoticedThoughNobodyReads(t *testing.T) {
	w := tunneltest.Open(t)
	hub, spoke := w.Converse(t)
	require.NoError(t, hub.SetWriteDeadline(time.Now().Add(300*time.Millisecond)))
	_, _ = hub.Write(make([]byte, 8<<20))
	done := make(chan struct{})
	go func() { w.Disconnect(); close(done) }()
	select {
	case <-done:
	case <-time.After(5 * time.Second):
		spoke.Close()
		<-done
		require.FailNow(t, "it waits for who does not read")
	}
}

// Whoever writes and does not read learns of the loss from that.
func TestWriterLearnsOfLoss(t *testing.T) {
	w := tunneltest.Open(t)
	hub, spoke := w.Converse(t)
	require.NoError(t, hub.SetWriteDeadline(time.Now().Add(300*time.Millisecond)))
	_, _ = hub.Write(make([]byte, 8<<20))
	require.NoError(t, w.Hub.Close())
	require.NoError(t, spoke.SetWriteDeadline(time.Now().Add(5*time.Second)))
	var err error
	for err == nil {
		_, err = spoke.Write(make([]byte, 100))
	}
	require.NotErrorIs(t, err, os.ErrDeadlineExceeded)
}
