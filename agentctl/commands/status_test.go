package commands_test

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestStatusChecksItsFlagsFirst(t *testing.T) {
	t.Parallel()
	require.Contains(t, run(t, nil, "status", "--interval=1ms", "-w").errors, "--interval")
	require.Contains(t, run(t, nil, "status", "--selector=a==b==c").errors, "--selector")
	require.Contains(t, run(t, nil, "status", "now").errors, "takes no argument")
	unreachable := run(t, nil, "status", "-w")
	require.Equal(t, 1, unreachable.code)
	require.Contains(t, unreachable.errors, "the API server at http://127.0.0.1:1 cannot be asked", "whoever asks for the wrong hub does not wait for it")
}
