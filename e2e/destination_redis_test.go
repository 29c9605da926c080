package e2e_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/argocd"
)

// redis is a connection to a Redis, or to what passes for one.
type redis struct {
	conn    net.Conn
	replies *bufio.Reader
}

// dialRedis connects as Argo CD does, until the test is over.
func dialRedis(t *testing.T, address string) *redis {
	t.Helper()
	var dialer net.Dialer
	conn, err := dialer.DialContext(t.Context(), "tcp", address)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, conn.Close()) })
	require.NoError(t, conn.SetDeadline(time.Now().Add(timeout)))
	r := &redis{conn, bufio.NewReader(conn)}
	require.Equal(t, "+OK", r.ask(t, "AUTH", argocd.RedisPassword))
	return r
}

// ask sends a command and returns its reply: a text as it is, all else as Redis writes it.
func (r *redis) ask(t *testing.T, words ...string) string {
	t.Helper()
	command := fmt.Sprintf("*%d\r\n", len(words))
	for _, word := range words {
		command += fmt.Sprintf("$%d\r\n%s\r\n", len(word), word)
	}
	_, err := io.WriteString(r.conn, command)
	require.NoError(t, err)
	line, err := r.replies.ReadString('\n')
	require.NoError(t, err)
	line = strings.TrimSpace(line)
	size, err := strconv.Atoi(strings.TrimPrefix(line, "$"))
	if err != nil || size < 0 {
		return line
	}
	text := make([]byte, size+2) // and the end of the line
	_, err = io.ReadFull(r.replies, text)
	require.NoError(t, err)
	return string(text[:size])
}

// What argocd-server reads of an application comes from its spoke, wherever that is, and of all others from the hub.
func TestUIReadsFromDestinationAgent(t *testing.T) {
	t.Parallel()
	f := newFederation(t)
	s := f.newSite(t, "shown", lab.AgentOptions{})
	team := f.team(t, "red", s)
	theirs, beside := s.within(team, "shop").create(t), s.withArgoCD("shop").create(t)
	foreign := s.within(team, "foreign").create(t, destined(unique("no-agent")))
	theirs.arrives(t)
	beside.arrives(t)
	proxy := newRedisproxy(t, lab.ProxyOptions{Principal: f.principal})

	key := func(instance string) string { return "app|managed-resources|" + instance + "|1.8.3" }
	hub, spoke, asked := dialRedis(t, shared.Hub.ArgoCD.RedisAddress), dialRedis(t, s.spoke.ArgoCD.RedisAddress), dialRedis(t, proxy.Address)
	for instance, want := range map[string]string{
		theirs.instance(): "of the spoke", beside.declared.Name: "of the spoke", foreign.instance(): "of the hub",
	} {
		require.Equal(t, "+OK", hub.ask(t, "SET", key(instance), "of the hub"))
		require.Equal(t, "+OK", spoke.ask(t, "SET", key(instance), "of the spoke"))
		require.Equal(t, want, asked.ask(t, "GET", key(instance)), instance)
	}
}
