package enrollment

import (
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	enrollv1 "github.com/argocd-agent-mesh/argocd-agent-mesh/api/enroll/v1"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/dnstest"
)

// A DNS that does not answer for TXT records, and /etc/hosts that has the principal's name, must not hold up an agent that enrolls.
func TestEnrollmentLooksForAddressesOnly(t *testing.T) {
	dns := dnstest.Start(t)
	conn, err := grpc.NewClient("principal.test:1", dial(insecure.NewCredentials())...)
	require.NoError(t, err)
	_, err = enrollv1.NewEnrollmentClient(conn).Enroll(t.Context(), &enrollv1.EnrollRequest{})
	require.Error(t, err, "nobody listens there")
	require.NoError(t, conn.Close())
	dns.AddressesOnly(t)
}
