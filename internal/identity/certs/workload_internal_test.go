package certs

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWorkloadBackoffIsShort(t *testing.T) {
	t.Parallel()
	b := workloadBackoff{}.NewBackoff()
	require.Equal(t, firstWorkloadBackoff, b.Next())
	require.Equal(t, 2*firstWorkloadBackoff, b.Next())
	for range 100 {
		b.Next()
	}
	require.Equal(t, lastWorkloadBackoff, b.Next())
	b.Reset()
	require.Equal(t, firstWorkloadBackoff, b.Next())
}
