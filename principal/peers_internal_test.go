package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/settings/settingstest"
)

// Behind a sidecar a principal that dialled its own address would be refused by itself, again and again.
func TestPrincipalsDoNotDialThemselves(t *testing.T) {
	t.Parallel()
	s := &principalSettings{}
	require.NoError(t, settingstest.Parse(s.Declare, nil, "--listen-port=8443"))
	require.Equal(t, []string{"192.0.2.1:8443", "127.0.0.1:9443", "[2001:db8::1]:8443", "hub:8443"},
		s.withoutOwn([]string{"127.0.0.1:8443", "192.0.2.1:8443", "127.0.0.1:9443", "[2001:db8::1]:8443", "hub:8443"}))
}
