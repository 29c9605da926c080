package redisprobe_test

import (
	"crypto/tls"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/redisprobe"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/pki"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/redis/redistest"
)

// patience is long: a machine may stand still for longer than a person waits.
const patience = 2 * time.Minute

func newCA(t *testing.T, name string) *pki.CA {
	t.Helper()
	made, err := pki.NewCA(pki.CAOptions{CommonName: name})
	require.NoError(t, err)
	return made
}

// secured starts a Redis that speaks TLS, and returns what trusts it.
func secured(t *testing.T, ca *pki.CA, name string) (*redistest.Redis, *tls.Config) {
	t.Helper()
	pair, err := ca.IssueServer(pki.ServerOptions{Names: []string{name}, Addresses: []net.IP{net.IPv4(192, 0, 2, 1)}})
	require.NoError(t, err)
	folder := t.TempDir()
	file := func(name string, data []byte) string {
		path := filepath.Join(folder, name)
		require.NoError(t, os.WriteFile(path, data, 0o600))
		return path
	}
	roots := file("ca.crt", ca.PEM().Certificate)
	return redistest.StartTLS(t, file("tls.crt", pair.Certificate), file("tls.key", pair.Key), roots), redistest.Trust(t, roots)
}

func TestRedisByTLS(t *testing.T) {
	t.Parallel()
	redis, trust := secured(t, newCA(t, "redis"), "argocd-redis")
	plain := redistest.Start(t)
	_, strangers := secured(t, newCA(t, "another"), "argocd-redis")
	for name, c := range map[string]struct {
		change func(*redisprobe.Target)
		want   error
	}{
		"as it should be":             {func(*redisprobe.Target) {}, nil},
		"by its second name":          {func(o *redisprobe.Target) { o.Names = []string{"127.0.0.1", "argocd-redis"} }, nil},
		"by no name of its":           {func(o *redisprobe.Target) { o.Names = []string{"127.0.0.1"} }, redisprobe.ErrName},
		"of another CA":               {func(o *redisprobe.Target) { o.TLS = strangers }, redisprobe.ErrUntrusted},
		"asked in plain text":         {func(o *redisprobe.Target) { o.TLS = nil }, redisprobe.ErrTLS},
		"in plain text, asked by TLS": {func(o *redisprobe.Target) { o.Address = plain.Address }, redisprobe.ErrPlain},
		"not there":                   {func(o *redisprobe.Target) { o.Address = "127.0.0.1:1" }, redisprobe.ErrUnreachable},
		"not there, in plain text":    {func(o *redisprobe.Target) { o.Address, o.TLS = "127.0.0.1:1", nil }, redisprobe.ErrUnreachable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			target := redisprobe.Target{Address: redis.Address, TLS: trust, Names: []string{"argocd-redis"}, Timeout: patience}
			c.change(&target)
			client, err := redisprobe.Open(t.Context(), target)
			if c.want != nil {
				require.ErrorIs(t, err, c.want)
				return
			}
			require.NoError(t, err)
			defer client.Close()
			value, err := client.Do(t.Context(), "GET", "nothing")
			require.NoError(t, err)
			require.Nil(t, value)
		})
	}
}

func TestPasswordOfRedis(t *testing.T) {
	t.Parallel()
	locked, open := redistest.Start(t, "--requirepass", "right"), redistest.Start(t)
	for name, c := range map[string]struct {
		target redisprobe.Target
		want   error
	}{
		"right":                {redisprobe.Target{Address: locked.Address, Password: "right"}, nil},
		"right, with its user": {redisprobe.Target{Address: locked.Address, Username: "default", Password: "right"}, nil},
		"wrong":                {redisprobe.Target{Address: locked.Address, Password: "wrong"}, redisprobe.ErrPassword},
		"wrong user":           {redisprobe.Target{Address: locked.Address, Username: "nobody", Password: "right"}, redisprobe.ErrPassword},
		"missing":              {redisprobe.Target{Address: locked.Address}, redisprobe.ErrNoPassword},
		"none":                 {redisprobe.Target{Address: open.Address}, nil},
		"one too many":         {redisprobe.Target{Address: open.Address, Password: "right"}, redisprobe.ErrPassword},
	} {
		c.target.Timeout = patience
		client, err := redisprobe.Open(t.Context(), c.target)
		if c.want != nil {
			require.ErrorIs(t, err, c.want, name)
			require.NotContains(t, err.Error(), "right", name)
			continue
		}
		require.NoError(t, err, name)
		client.Close()
	}
}

// A server that is no Redis, or says nothing of use, never sees the password.
func TestPasswordGoesToRedisOnly(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		says string
		want error
	}{
		"HTTP":                {"HTTP/1.1 400 Bad Request\r\n\r\n", redisprobe.ErrNoRedis},
		"a list":              {"*1\r\n$1\r\na\r\n", redisprobe.ErrNoRedis},
		"an error":            {"-DENIED by me\r\n", redisprobe.ErrReply},
		"a long error":        {"-" + strings.Repeat("no", 10_000) + "\r\n", redisprobe.ErrReply},
		"what never ends":     {"$9999999999\r\n", nil},
		"nothing at all":      {"", nil},
		"TLS, and not really": {"\x15\x03\x01\x00\x02\x02\x46", redisprobe.ErrNoRedis},
	} {
		listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
		require.NoError(t, err)
		heard := make(chan string)
		go func() {
			defer close(heard)
			for { // the probe comes again, to see whether it is TLS
				conn, err := listener.Accept()
				if err != nil {
					return
				}
				_, _ = conn.Write([]byte(c.says))
				_ = conn.(*net.TCPConn).CloseWrite()
				text, _ := io.ReadAll(conn)
				_ = conn.Close()
				heard <- string(text)
			}
		}()
		got := make(chan error, 1)
		go func() {
			_, err := redisprobe.Open(t.Context(), redisprobe.Target{Address: listener.Addr().String(), Password: "secret", Timeout: patience})
			_ = listener.Close()
			got <- err
		}()
		for text := range heard {
			require.NotContains(t, text, "secret", name)
		}
		err = <-got
		require.Error(t, err, name)
		require.Less(t, len(err.Error()), 2000, name)
		if c.want != nil {
			require.ErrorIs(t, err, c.want, name)
		}
	}
}
