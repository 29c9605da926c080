package gateway_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/xfcc"
)

// vouching adds to each request what a sidecar says of a caller.
type vouching struct {
	http.RoundTripper

	caller string
}

func (v vouching) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set(xfcc.Header, says(v.caller))
	return v.RoundTripper.RoundTrip(r)
}

// says is the header of a caller of an agent, or of whoever has that SPIFFE ID.
func says(caller string) string {
	if !strings.HasPrefix(caller, "spiffe://") {
		caller = identity.Caller{TrustDomain: identity.CallerTrustDomain, Agent: identity.Agent(caller)}.URI().String()
	}
	return `By=spiffe://hub.test/kubeproxy;Hash=` + strings.Repeat("ab", 32) + `;Subject="";URI=` + caller
}

// plain is a client as a sidecar is one: by h2c or by HTTP/1.1, over one connection, with these headers.
func (h *hub) plain(t *testing.T, http2 bool) func(target string, headers ...string) (answer, string) {
	t.Helper()
	transport := &http.Transport{Protocols: new(http.Protocols), MaxConnsPerHost: 1, DisableCompression: true}
	transport.Protocols.SetHTTP1(!http2)
	transport.Protocols.SetUnencryptedHTTP2(http2)
	t.Cleanup(transport.CloseIdleConnections)
	client := &http.Client{Transport: transport}
	return func(target string, headers ...string) (answer, string) {
		t.Helper()
		r, err := http.NewRequestWithContext(withTimeout(t), http.MethodGet, "http://"+h.address+target, http.NoBody)
		require.NoError(t, err)
		r.Header["X-Forwarded-Client-Cert"] = headers
		return do(t, client, r)
	}
}

// A sidecar sends what different callers ask over one connection.
func TestCallerBehindASidecarIsThatOfEachRequest(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, http2 bool) {
		h := openFor(t, identity.Proxies{Local: true})
		for _, name := range []string{"a", "b"} {
			h.agent(t, name, func(w http.ResponseWriter, r *http.Request) {
				fmt.Fprint(w, name, " ", r.Header.Get("Argocd-Agent-Caller"), " ", r.Header.Get(xfcc.Header))
			})
		}
		get := h.plain(t, http2)
		for range 2 {
			for _, name := range []string{"a", "b"} {
				response, body := get("/api", says(name))
				require.Equal(t, http.StatusOK, response.StatusCode, body)
				require.Equal(t, name+" "+name+" ", body, "and the header is not the spoke's to see")
				_, body = get("/agents/"+name+"/api", says(allAgents))
				require.Equal(t, name+" "+allAgents+" ", body)
			}
			response, body := get("/agents/b/api", says("a"))
			requireStatus(t, response, body, http.StatusForbidden, "Forbidden", `may not reach agent "b"`)
			for reason, headers := range map[string][]string{
				"there is none: have the proxy ask":   nil,
				"there are 2: have the proxy replace": {says("a"), says("a")},
				"it has 2 elements":                   {says("b") + "," + says("a")},
				"want pairs of key=value":             {strings.ReplaceAll(says("a"), "=", "%3D")},
				"it has 2 URIs":                       {says("a") + ";URI=" + allAgents},
				"it has no URI among":                 {"By=spiffe://hub.test/kubeproxy;Hash=" + strings.Repeat("ab", 32)},
				`is not that of a caller`:             {says("spiffe://hub.test/ns/argocd/sa/evil")},
				"in the setting --callers":            {says("spiffe://evil.test/caller/a")},
			} {
				response, body := get("/api", headers...)
				requireStatus(t, response, body, http.StatusUnauthorized, "Unauthorized", reason)
				require.Contains(t, h.log.String(), reason)
			}
		}
	})
}

// Who connects directly is known by its own certificate, and says nothing of others.
func TestHeaderOfADirectCallerIsRefused(t *testing.T) {
	t.Parallel()
	h := open(t)
	r := h.request(t, http.MethodGet, "/api", http.NoBody)
	r.Header.Set(xfcc.Header, says(allAgents))
	response, body := do(t, h.client(t, "a", true), r)
	requireStatus(t, response, body, http.StatusUnauthorized, "Unauthorized", "counts only from a trusted proxy")
}

func TestExecOverPlainText(t *testing.T) {
	t.Parallel()
	h := openFor(t, identity.Proxies{Local: true})
	h.executes(t, &rest.Config{Host: "http://" + h.address, WrapTransport: func(next http.RoundTripper) http.RoundTripper {
		return vouching{next, "a"}
	}})
}

// Nothing that either side sends early is lost.
func TestUpgradeOverPlainTextKeepsEarlyData(t *testing.T) {
	t.Parallel()
	h := openFor(t, identity.Proxies{Local: true})
	h.switching(t, func(_ *http.Request, conn net.Conn, reader *bufio.Reader) {
		all, _ := io.ReadAll(reader) // until the caller has ended its half
		_, _ = io.WriteString(conn, "you said "+string(all))
	})
	conn, err := new(net.Dialer).DialContext(withTimeout(t), "tcp", h.address)
	require.NoError(t, err)
	defer conn.Close()
	require.NoError(t, conn.SetDeadline(time.Now().Add(testTimeout)))
	_, err = io.WriteString(conn, strings.Replace(upgradeHead, "Host: x", "Host: x\r\n"+xfcc.Header+": "+says("a"), 1)+"early")
	require.NoError(t, err)
	reader := bufio.NewReader(conn)
	response, err := http.ReadResponse(reader, nil)
	require.NoError(t, err)
	defer response.Body.Close()
	require.Equal(t, http.StatusSwitchingProtocols, response.StatusCode)
	half, ok := conn.(*net.TCPConn)
	require.True(t, ok)
	require.NoError(t, half.CloseWrite())
	all, err := io.ReadAll(reader)
	require.NoError(t, err)
	require.Equal(t, "welcome\nyou said early", string(all))
}
