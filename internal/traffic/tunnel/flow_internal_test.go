package tunnel

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCreditIsTheWindow(t *testing.T) {
	c := newCredit()
	require.Equal(t, window, c.available())
	c.spend(window - 1)
	require.Equal(t, 1, c.available())
	c.spend(maxData)
	require.Zero(t, c.available(), "a frame may exceed it")
	require.True(t, c.acknowledge(window))
	require.Equal(t, window-maxData+1, c.available())
}

func TestAckBeyondSentBytesIsRejected(t *testing.T) {
	c := newCredit()
	c.spend(10)
	require.True(t, c.acknowledge(10))
	require.False(t, c.acknowledge(11))
	require.True(t, c.acknowledge(5), "an old one does no harm")
	require.Equal(t, window, c.available())
}

func TestAcksAreDueAfterEnoughWasRead(t *testing.T) {
	a := newAcks()
	a.add(ackAfter - 1)
	require.Zero(t, a.takeDue())
	a.add(1)
	require.EqualValues(t, ackAfter, a.takeDue())
	require.Zero(t, a.takeDue())
}
