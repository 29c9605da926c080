package apihttp_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/apihttp"
)

func TestAmbiguousHeadersAreRefused(t *testing.T) {
	t.Parallel()
	for message, header := range map[string]http.Header{
		"2 headers Authorization":                    {"Authorization": {"Bearer a", "Bearer b"}},
		"2 headers Content-Type":                     {"Content-Type": {"application/json", "application/yaml"}},
		"2 headers Impersonate-User":                 {"Impersonate-User": {"jane", "root"}},
		"2 headers Impersonate-Uid":                  {"Impersonate-Uid": {"1", "2"}},
		"2 headers Argocd-Agent-Caller":              {apihttp.CallerHeader: {"a", "b"}},
		"2 headers Upgrade":                          {"Upgrade": {"websocket", "h2c"}},
		`upgrade to "h2c"`:                           {"Upgrade": {"h2c"}, "Connection": {"Upgrade, HTTP2-Settings"}},
		`header Connection names "Impersonate-User"`: {"Connection": {"keep-alive, Impersonate-User"}},
		`header Connection names "X-Remote-User"`:    {"Connection": {"close", "X-Remote-User"}},
	} {
		err := apihttp.CheckHeaders(header)
		refusal := new(apihttp.Error)
		require.ErrorAs(t, err, &refusal, message)
		require.Equal(t, http.StatusBadRequest, refusal.Code)
		require.ErrorContains(t, err, message)
	}
	for _, header := range []http.Header{
		{}, {"Connection": {"Keep-Alive", "Upgrade,TE, "}, "Upgrade": {"WebSocket"}, "Impersonate-Group": {"a", "b"}}, {"Upgrade": {"SPDY/3.1"}},
	} {
		require.NoError(t, apihttp.CheckHeaders(header))
	}
}

// What follows the headers of an upgrade is either a body or the new protocol.
func TestUpgradeWithABodyIsRefused(t *testing.T) {
	t.Parallel()
	for length, refused := range map[int64]bool{0: false, 1: true, -1: true} { // -1: chunked
		r := &http.Request{Header: http.Header{"Upgrade": {"SPDY/3.1"}, "Connection": {"Upgrade"}}, ContentLength: length}
		err := apihttp.CheckUpgrade(r)
		if refused {
			require.ErrorContains(t, err, "the request has a body", length)
		} else {
			require.NoError(t, err, length)
		}
		r.Header = http.Header{}
		require.NoError(t, apihttp.CheckUpgrade(r))
	}
}

func TestCredentialsAreDropped(t *testing.T) {
	t.Parallel()
	header := http.Header{"Accept": {"*/*"}, "Impersonate-User": {"jane"}, "Sec-Websocket-Protocol": {
		"v5.channel.k8s.io, base64url.bearer.authorization.k8s.io.c2VjcmV0", "v4.channel.k8s.io",
	}}
	kept := header.Clone()
	kept.Set("Sec-Websocket-Protocol", "v5.channel.k8s.io, v4.channel.k8s.io")
	for _, name := range []string{
		"Authorization", "Cookie", "X-Real-Ip", "Idempotency-Key", "X-Idempotency-Key", "Argocd-Agent-Caller", "X-Forwarded-For",
		"X-Forwarded-Client-Cert", "X-Remote-User", "X-Remote-Extra-Scopes", "X-Envoy-Original-Path",
	} {
		header.Set(name, "x")
	}
	require.True(t, apihttp.HasBearerProtocol(header))
	apihttp.DropCredentials(header)
	require.Equal(t, kept, header)
	require.False(t, apihttp.HasBearerProtocol(header))

	header = http.Header{"Sec-Websocket-Protocol": {"base64url.bearer.authorization.k8s.io.c2VjcmV0"}}
	apihttp.DropCredentials(header)
	require.Empty(t, header)
}

func TestImpersonationIsDropped(t *testing.T) {
	t.Parallel()
	header := http.Header{"Accept": {"*/*"}, "Impersonate-User": {"jane"}, "Impersonate-Group": {"a", "b"}, "Impersonate-Extra-X": {"y"}, "Impersonate-": {"z"}}
	apihttp.DropImpersonation(header)
	require.Equal(t, http.Header{"Accept": {"*/*"}}, header)
}
