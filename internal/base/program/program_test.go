package program_test

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/logging"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/program"
)

// Whoever reads a program's log learns which program of which build that was.
func TestBeginLogsNameAndVersion(t *testing.T) {
	var log bytes.Buffer
	base, err := program.Begin(program.Options{Name: "argocd-agent-test", Output: &log})
	require.NoError(t, err)
	require.Contains(t, log.String(), "program=argocd-agent-test version=dev")
	metrics, err := base.Registry.Gather()
	require.NoError(t, err)
	require.NotEmpty(t, metrics)
}

func TestBeginRefusesInvalidLogLevel(t *testing.T) {
	_, err := program.Begin(program.Options{Log: logging.Options{Levels: []string{"loud"}}})
	require.ErrorContains(t, err, "want [component=]level")
}
