package doctor

import (
	"crypto/tls"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/dnstest"
)

// A DNS that does not answer for TXT records must not make a hop look slow that is fast for the agent.
func TestDoctorLooksForAddressesOnly(t *testing.T) {
	dns := dnstest.Start(t)
	made := stream(t.Context(), "principal.test:1", &tls.Config{MinVersion: tls.VersionTLS13})
	require.NotEmpty(t, made.Problems, "nobody listens there")
	dns.AddressesOnly(t)
}
