package gateway_test

import (
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/pki"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/token"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/tunnel"
)

// echo connects agents that answer with their name, the caller, and credentials that should not have reached them.
func (h *hub) echo(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		h.agent(t, name, func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprint(w, name, " for ", r.Header.Get("Argocd-Agent-Caller"))
			for key := range r.Header {
				if strings.HasPrefix(key, "X-") || key == "Authorization" || key == "Forwarded" || key == "Proxy-Authorization" {
					fmt.Fprint(w, " LEAKED ", key)
				}
			}
		})
	}
}

func (h *hub) token(t *testing.T, agent string) string {
	t.Helper()
	issued, err := h.keys.Issue(agent, time.Hour)
	require.NoError(t, err)
	return issued
}

// A token never gives access to an agent that the certificate excludes.
func TestCertificatesAndTokensDecideWhichAgentIsReached(t *testing.T) {
	t.Parallel()
	h := open(t)
	h.echo(t, "a", "b")
	h.away["c"] = tunnel.ErrNotConnected
	h.away["unreachable"] = io.ErrUnexpectedEOF
	foreign, err := token.ParseKeys(newCA(t, "another key").PEM().Key)
	require.NoError(t, err)
	forged, err := foreign.Issue("a", time.Hour)
	require.NoError(t, err)
	expired, err := h.keys.Issue("a", time.Nanosecond)
	require.NoError(t, err)

	const shared = "spiffe://argocd-agent/caller"
	const unsigned = "eyJhbGciOiJub25lIn0.eyJzdWIiOiJhIn0."
	for name, c := range map[string]struct {
		certificate, target string
		authorization       []string
		code                int
		reason, text        string
	}{
		"its certificate":                       {"a", "/api", nil, 200, "", "a for a"},
		"its token too":                         {"a", "/api", []string{"Bearer " + h.token(t, "a")}, 200, "", "a for a"},
		"a token, its path":                     {"a", "/agents/a/api", []string{"bearer  " + h.token(t, "a")}, 200, "", "a for a"},
		"a shared certificate":                  {shared, "/api", []string{"Bearer " + h.token(t, "b")}, 200, "", "b for b"},
		"a shared certificate without a token":  {shared, "/api", nil, 401, "Unauthorized", "come with a token"},
		"its path without a token":              {shared, "/agents/b/api", nil, 401, "Unauthorized", "come with a token"},
		"all agents by path":                    {allAgents, "/agents/b/api", nil, 200, "", "b for " + allAgents},
		"all agents by token":                   {allAgents, "/api", []string{"Bearer " + h.token(t, "a")}, 200, "", "a for a"},
		"another kind of authorization":         {"a", "/api", []string{"Basic YTpi"}, 200, "", "a for a"},
		"the certificate of a connected agent":  {"b", "/api", []string{"Bearer " + h.token(t, "a")}, 403, "Forbidden", `the certificate is that of a caller of agent "b"`},
		"of one that is away":                   {"c", "/api", []string{"Bearer " + h.token(t, "a")}, 403, "Forbidden", `the certificate is that of a caller of agent "c"`},
		"of one that nobody knows":              {"nobody", "/api", []string{"Bearer " + h.token(t, "a")}, 403, "Forbidden", `the certificate is that of a caller of agent "nobody"`},
		"an agent's own certificate":            {"CN=a", "/api", nil, 401, "Unauthorized", "agent create --upsert"},
		"an agent's own, and its token":         {"CN=a", "/api", []string{"Bearer " + h.token(t, "a")}, 401, "Unauthorized", "is not that of a caller of the hub"},
		"an unknown agent's own, and a token":   {"CN=nobody", "/api", []string{"Bearer " + h.token(t, "a")}, 401, "Unauthorized", "is not that of a caller of the hub"},
		"anybody's, and a token":                {"CN=Shared by all", "/api", []string{"Bearer " + h.token(t, "a")}, 401, "Unauthorized", "is not that of a caller of the hub"},
		"an agent's SPIFFE ID, and a token":     {"spiffe://example.org/ns/argocd/sa/a", "/api", []string{"Bearer " + h.token(t, "a")}, 401, "Unauthorized", "is not that of a caller"},
		"a caller of another trust domain":      {"spiffe://example.org/caller/a", "/api", nil, 401, "Unauthorized", "the setting --callers"},
		"a caller by a longer path":             {"spiffe://argocd-agent/x/caller/a", "/api", nil, 401, "Unauthorized", "is not that of a caller"},
		"a common name in place of the URI":     {"CN=" + allAgents, "/agents/b/api", nil, 401, "Unauthorized", "is not that of a caller"},
		"a path beside the token":               {allAgents, "/agents/b/api", []string{"Bearer " + h.token(t, "a")}, 403, "Forbidden", `the token is for agent "a"`},
		"a path beside the certificate":         {"a", "/agents/b/api", nil, 403, "Forbidden", "the setting --callers"},
		"all agents without a path":             {allAgents, "/api", nil, 400, "BadRequest", "/agents/<name>/"},
		"a forged token":                        {"a", "/api", []string{"Bearer " + forged}, 401, "Unauthorized", "not signed by a key that is known here"},
		"an expired token":                      {"a", "/api", []string{"Bearer " + expired}, 200, "", "a for a"}, // within the leeway
		"an unsigned token":                     {"a", "/api", []string{"Bearer " + unsigned}, 401, "Unauthorized", "not signed by a key that is known here"},
		"rubbish":                               {"a", "/api", []string{"Bearer x"}, 401, "Unauthorized", "malformed"},
		"no token":                              {"a", "/api", []string{"Bearer"}, 401, "Unauthorized", "malformed"},
		"a huge token":                          {"a", "/api", []string{"Bearer " + strings.Repeat("x", 10000)}, 401, "Unauthorized", "10000 characters"},
		"two authorizations":                    {"a", "/api", []string{"Bearer " + h.token(t, "a"), "Bearer x"}, 400, "BadRequest", "2 headers Authorization"},
		"a certificate that is no SPIFFE ID":    {"spiffe://argocd-agent/caller/Shared%20by%20all", "/api", nil, 401, "Unauthorized", "is no SPIFFE ID"},
		"a certificate that is no agent's name": {"spiffe://argocd-agent/caller/Shared_by_all", "/api", nil, 403, "Forbidden", "Shared_by_all"},
		"two agents, by path":                   {twoAgents, "/agents/b/api", nil, 200, "", "b for " + twoAgents},
		"two agents, by token":                  {twoAgents, "/api", []string{"Bearer " + h.token(t, "a")}, 200, "", "a for a"},
		"two agents, without a path":            {twoAgents, "/api", nil, 400, "BadRequest", `may reach agent "a" or "b": say which by the path`},
		"two agents, the path of a third":       {twoAgents, "/agents/c/api", nil, 403, "Forbidden", `a caller of agent "a" or "b", which may not reach agent "c"`},
		"two agents, the token of a third":      {twoAgents, "/api", []string{"Bearer " + h.token(t, "c")}, 403, "Forbidden", `the token is for agent "c"`},
		"a certificate for no known agent":      {"nobody", "/api", nil, 404, "NotFound", `agent "nobody": there is no such agent`},
		"an agent that is away":                 {"c", "/api", nil, 503, "ServiceUnavailable", "the agent is not connected"},
		"a principal that cannot be reached":    {"unreachable", "/api", nil, 502, "BadGateway", "--principal-address"},
	} {
		t.Run(name, func(t *testing.T) {
			r := h.request(t, http.MethodGet, c.target, http.NoBody)
			if c.authorization != nil {
				r.Header["Authorization"] = c.authorization
			}
			response, body := do(t, h.client(t, c.certificate, true), r)
			if c.code == http.StatusOK {
				require.Equal(t, http.StatusOK, response.StatusCode, body)
				require.Equal(t, c.text, body)
				return
			}
			requireStatus(t, response, body, c.code, c.reason, c.text)
			require.Empty(t, response.Header.Get("Retry-After"), "the user gets the error at once")
		})
	}
	require.Contains(t, h.log.String(), "Request refused")
}

// A token does not replace it.
func TestClientCertificateIsRequired(t *testing.T) {
	t.Parallel()
	h := open(t)
	h.echo(t, "a")
	stranger := &hub{ca: newCA(t, "stranger")}
	for name, certificate := range map[string]*tls.Certificate{
		"none": nil, "of another CA": stranger.certificate(t, "a"),
		"expired": h.certificate(t, "a", pki.Validity{NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(-time.Minute)}),
	} {
		t.Run(name, func(t *testing.T) {
			r := h.request(t, http.MethodGet, "/api", http.NoBody)
			r.Header.Set("Authorization", "Bearer "+h.token(t, "a"))
			response, err := h.clientOf(t, h.config(certificate), false).Do(r)
			if err == nil {
				response.Body.Close()
			}
			require.ErrorContains(t, err, "tls: ")
		})
	}
}

func TestCredentialsDoNotReachTheSpoke(t *testing.T) {
	t.Parallel()
	h := open(t)
	h.echo(t, "a")
	both(t, func(t *testing.T, http2 bool) {
		r := h.request(t, http.MethodGet, "/api", http.NoBody)
		for _, name := range []string{
			"X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Uri", "X-Real-Ip", "Forwarded",
			"X-Remote-User", "X-Remote-Group", "X-Remote-Extra-Scopes", "Argocd-Agent-Caller", "Proxy-Authorization",
		} {
			r.Header.Set(name, "forged")
		}
		r.Header.Set("Authorization", "Bearer "+h.token(t, "a"))
		_, body := do(t, h.client(t, "a", http2), r)
		require.Equal(t, "a for a", body)
		r = h.request(t, http.MethodGet, "/api", http.NoBody)
		r.Header.Set("X-Forwarded-Client-Cert", "URI=spiffe://argocd-agent/caller/b")
		response, body := do(t, h.client(t, "a", http2), r)
		require.Equal(t, http.StatusUnauthorized, response.StatusCode)
		require.Contains(t, body, "counts only from a trusted proxy")
	})
}

func TestAmbiguousPathsAndHeadersAreRefused(t *testing.T) {
	t.Parallel()
	h := open(t)
	h.echo(t, "a")
	for target, text := range map[string]string{
		"/agents/a/../b/api":         "has a segment",
		"/agents/a/%2e%2e/b/api":     "has a segment",
		"/api/v1/..%2f..%2fagents/b": "has a segment",
		"/./agents/b/api":            "has a segment",
		"//agents/b/api":             "two slashes",
		"/%2Fagents/b/api":           "two slashes",
		"/agents//b/api":             "agent name",
		"/agents/a//api":             "two slashes after",
		"/agents/a/%2Fapi":           "two slashes after",
		"/agents/a%2Fapi":            "agent name",
		"/agents%2Fb/api":            "without encoding",
		"/%61gents/b/api":            "without encoding",
		"/agents/%62/api":            "agent name",
		"/agents/B/api":              "agent name",
		"/agents":                    "agents",
		"/agents/":                   "agent name",
		"/api/%zz":                   "",
		"/api/\xff":                  "encode it",
		"/api#x":                     "encode it",
		"api":                        "",
		"*":                          "begin with a slash",
		"https://elsewhere/api":      "begin with a slash",
	} {
		t.Run(target, func(t *testing.T) {
			response, body := h.say(t, "a", "GET "+target+" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
			require.Equal(t, http.StatusBadRequest, response.StatusCode, body)
			require.Contains(t, body, text)
		})
	}
	for name, c := range map[string]struct{ head, text string }{
		"connection names authorization":      {"GET /api HTTP/1.1\r\nHost: x\r\nConnection: close, Authorization\r\nAuthorization: Basic x\r\n", "header Connection names"},
		"connection names impersonation":      {"GET /api HTTP/1.1\r\nHost: x\r\nConnection: impersonate-user\r\nImpersonate-User: jane\r\n", "header Connection names"},
		"two impersonated users":              {"GET /api HTTP/1.1\r\nHost: x\r\nImpersonate-User: jane\r\nimpersonate-user: root\r\n", "2 headers Impersonate-User"},
		"two hosts":                           {"GET /api HTTP/1.1\r\nHost: x\r\nHost: y\r\n", "400"},
		"two lengths":                         {"POST /api HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n", ""},
		"an odd transfer encoding":            {"POST /api HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: xchunked\r\n", ""},
		"a space before the colon":            {"GET /api HTTP/1.1\r\nHost: x\r\nAuthorization : Basic x\r\n", ""},
		"a folded header":                     {"GET /api HTTP/1.1\r\nHost: x\r\nX: y\r\n Authorization: x\r\n y\r\n :z\r\n", ""},
		"connect":                             {"CONNECT a:80 HTTP/1.1\r\nHost: a:80\r\n", "no forward proxy"},
		"connect with a path":                 {"CONNECT /api HTTP/1.1\r\nHost: a\r\n", "no forward proxy"},
		"h2c, in which nobody would see more": {"GET /api HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: x\r\n", "only WebSocket and SPDY"},
	} {
		t.Run(name, func(t *testing.T) {
			response, body := h.say(t, "a", c.head+"Connection: close\r\n\r\n")
			if name == "a folded header" { // is one value, and names nothing
				require.Equal(t, "a for a", body)
				return
			}
			require.Contains(t, []int{http.StatusBadRequest, http.StatusNotImplemented}, response.StatusCode, body)
			require.Contains(t, body, c.text)
		})
	}
}

func TestRequestSmugglingInABody(t *testing.T) {
	t.Parallel()
	h := open(t)
	bodies := make(chan string, 2)
	h.agent(t, "a", func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		bodies <- r.RequestURI + " " + string(body)
	})
	const inner = "GET /secret HTTP/1.1\r\nHost: x\r\nArgocd-Agent-Caller: root\r\n\r\n"
	response, _ := h.say(t, "a", "POST /api HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n"+
		fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(inner), inner))
	if response.StatusCode == http.StatusOK {
		require.Equal(t, "/api "+inner, <-bodies)
	}
	require.Empty(t, bodies)
}

func TestTooLargeHeadersAreRefused(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, http2 bool) {
		h := open(t)
		h.agent(t, "a", func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, len(r.Header.Get("Big"))) })
		r := h.request(t, http.MethodGet, "/api", http.NoBody)
		r.Header.Set("Big", strings.Repeat("x", 900<<10))
		_, body := do(t, h.client(t, "a", http2), r)
		require.Equal(t, fmt.Sprint(900<<10), body)
		if http2 {
			r.Header.Set("Big", strings.Repeat("x", 1100<<10))
			_, err := h.client(t, "a", true).Do(r) //nolint:bodyclose // there is none
			require.Error(t, err)                  // the server ends the connection
			return
		}
		response, _ := h.say(t, "a", "GET /api HTTP/1.1\r\nHost: x\r\nBig: "+strings.Repeat("x", 1100<<10)+"\r\n\r\n")
		require.Equal(t, http.StatusRequestHeaderFieldsTooLarge, response.StatusCode)
	})
}
