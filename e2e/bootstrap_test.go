package e2e_test

import (
	"context"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab"
)

// What is wrong with gRPC's bootstrap file is in the log and in /readyz, and the program lives: it comes up with the next one that is right.
func TestWrongBootstrapIsSaid(t *testing.T) {
	t.Parallel()
	write := func(t *testing.T, text string) string {
		t.Helper()
		path, err := shared.Host.Write("bootstrap/"+t.Name()+".json", []byte(text))
		require.NoError(t, err)
		return path
	}
	server := func(creds string) string {
		return `{"node": {"id": "wrong"}, "xds_servers": [{"server_uri": "127.0.0.1:1", "channel_creds": [{"type": "` + creds + `"}], "server_features": ["xds_v3"]}]}`
	}
	for name, c := range map[string]struct{ text, says string }{
		"no file":     {"", "open /no/such/file: no such file or directory"},
		"no JSON":     {"{", "unexpected end of JSON input"},
		"no servers":  {`{"node": {"id": "wrong"}}`, "required field `xds_servers` not found"},
		"credentials": {server("vault"), "`channel_creds` field in server config cannot be empty"},
		"no xds":      {server("argocd_agent"), "dial tcp 127.0.0.1:1: connect: connection refused"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := "/no/such/file"
			if c.text != "" {
				path = write(t, c.text)
			}
			proxy, err := shared.NewKubeproxy(t.Context(), lab.ProxyOptions{
				Args: []string{"--principal-address=xds:///argocd-agent-principal"}, Env: []string{"GRPC_XDS_BOOTSTRAP=" + path},
			})
			require.NoError(t, err)
			ctx, cancel := context.WithCancel(t.Context())
			started := make(chan struct{})
			go func() {
				defer close(started)
				_ = proxy.Start(ctx) // it does not become ready
			}()
			says(t, proxy, "Connection to principal failed; retrying", c.says)
			status, body := get(t, proxy.HealthURL+"/readyz")
			require.Equal(t, http.StatusServiceUnavailable, status)
			require.Contains(t, body, c.says)
			status, _ = get(t, proxy.HealthURL+"/healthz")
			require.Equal(t, http.StatusOK, status)
			cancel()
			<-started
			proxy.Kill()
		})
	}
}
