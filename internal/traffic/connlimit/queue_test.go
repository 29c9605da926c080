package connlimit_test

import (
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/connlimit"
)

// A host has all addresses of its IPv6 network. With one for each connection it would push out those who were there before.
func TestIPv6NetworkCountsAsOneAddress(t *testing.T) {
	t.Parallel()
	var queue connlimit.Queue[string]
	for _, one := range []string{"2001:db8:0:1::1", "192.0.2.1", "2001:db8::1", "::ffff:192.0.2.2", "2001:db8::2", "2001:db8::ffff:0:0:3"} {
		queue.Join(one, &net.TCPAddr{IP: net.ParseIP(one)})
	}
	var order []string
	for queue.Len() > 0 {
		dropped, ok := queue.Drop()
		require.True(t, ok)
		order = append(order, dropped)
	}
	require.Equal(t, []string{"2001:db8::1", "2001:db8::2", "2001:db8:0:1::1", "192.0.2.1", "::ffff:192.0.2.2", "2001:db8::ffff:0:0:3"}, order)
}
