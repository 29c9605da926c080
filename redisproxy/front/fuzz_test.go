package front_test

import (
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Whatever a client sends, it is answered or disconnected, and others are served.
func FuzzClient(f *testing.F) {
	for _, seed := range []string{
		command("PING"), command("GET", treeHub), command("MGET", "a", treeHub), "*1\r\n$9223372036854775807\r\n", "$9 get fleet\r\n", "GET a\r\n",
		command("SUBSCRIBE", channelHub) + command("UNSUBSCRIBE") + command("PING"), command("MULTI") + command("GET", treeHub) + command("EXEC"),
		command("HELLO", "3") + command("GET", treeHub), command("AUTH"), command("SELECT", "x"), command("HELLO", "9", "AUTH"), "*0\r\n*-1\r\n\r\n",
		command("CLIENT"), command("SET", treeHub), command("UNSUBSCRIBE"), command("SUBSCRIBE"), command("MONITOR") + command("PING"), command("RESET"),
		command("CLIENT", "TRACKING", "ON"), command("EXISTS"), command("MGET"), command("WATCH", "a") + command("QUIT"),
	} {
		f.Add([]byte(seed))
	}
	w := begin(f, setup{drain: time.Second, redisArgs: []string{
		"--rename-command", "SHUTDOWN", "", "--rename-command", "DEBUG", "", "--rename-command", "CONFIG", "", "--rename-command", "SLAVEOF", "",
		"--rename-command", "REPLICAOF", "", "--rename-command", "FAILOVER", "", "--maxmemory", "100mb",
	}})
	w.spoke.Set(f.Context(), treeSpoke, "tree", 0)
	other := dial(f, w.address)
	f.Fuzz(func(t *testing.T, input []byte) {
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", w.address)
		require.NoError(t, err)
		defer func() { _ = conn.Close() }()
		_, _ = conn.Write(input) // it may be disconnected before the end
		_ = conn.(*net.TCPConn).CloseWrite()
		_ = conn.SetReadDeadline(time.Now().Add(testTimeout))
		_, err = io.Copy(io.Discard, conn)
		if timeout, ok := err.(net.Error); ok && timeout.Timeout() { //nolint:errorlint // the copy's own
			require.Fail(t, "neither answered nor disconnected")
		}
		other.t = t
		_ = other.SetDeadline(time.Now().Add(testTimeout))
		require.Equal(t, bulk("x"), other.do("ECHO", "x"))
		require.Equal(t, bulk("tree"), other.do("GET", treeHub))
	})
}
