package gateway_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/pki"
)

// An agent whose connection breaks during a request may have carried it out.
func TestWritesAndUpgradesAreNotRetried(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		method, target string
		header         http.Header
		body           string
	}{
		"POST":                 {"POST", "/api/v1/pods", nil, "pod"},
		"POST without a body":  {"POST", "/api/v1/pods/x/eviction", nil, ""},
		"with Idempotency-Key": {"POST", "/api/v1/pods", http.Header{"Idempotency-Key": {"1"}, "X-Idempotency-Key": {"2"}}, ""},
		"DELETE":               {"DELETE", "/api/v1/pods/x", nil, ""},
		"PATCH":                {"PATCH", "/api/v1/pods/x", nil, "{}"},
		"exec": {"GET", "/api/v1/namespaces/x/pods/y/exec?command=reboot",
			http.Header{"Connection": {"Upgrade"}, "Upgrade": {"websocket"}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			h := open(t)
			var done atomic.Int32
			h.raw(t, "a", func(conn net.Conn, reader *bufio.Reader) {
				for {
					r, err := http.ReadRequest(reader)
					if err != nil {
						return
					}
					_, _ = io.Copy(io.Discard, r.Body)
					if r.URL.Path != "/warm" {
						done.Add(1)
						return
					}
					_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
				}
			})
			client := h.client(t, "a", false)
			warm, _ := do(t, client, h.request(t, http.MethodPost, "/warm", nil)) // its connection is then one that has been used
			require.Equal(t, http.StatusOK, warm.StatusCode)
			r := h.request(t, c.method, c.target, strings.NewReader(c.body))
			if c.header != nil {
				r.Header = c.header.Clone()
			}
			response, body := do(t, client, r)
			requireStatus(t, response, body, http.StatusBadGateway, "BadGateway", "look before you send it again")
			require.Equal(t, int32(1), done.Load())
		})
	}
}

// An idle connection may have died unnoticed. A GET changes nothing, so it is sent again.
func TestGetIsRetriedOnAStaleConnection(t *testing.T) {
	t.Parallel()
	h := open(t)
	var asked atomic.Int32
	h.raw(t, "a", func(conn net.Conn, reader *bufio.Reader) {
		for {
			if _, err := http.ReadRequest(reader); err != nil || asked.Add(1) == 2 {
				return
			}
			_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
		}
	})
	client := h.client(t, "a", true)
	for range 2 {
		_, body := h.get(t, client, "/api")
		require.Equal(t, "ok", body)
	}
	require.Equal(t, int32(3), asked.Load())
}

// Otherwise the next request would get the unsolicited response.
func TestUnsolicitedResponseClosesTheConnection(t *testing.T) {
	t.Parallel()
	h := open(t)
	asked, closed := make(chan struct{}), make(chan struct{})
	h.raw(t, "a", func(conn net.Conn, reader *bufio.Reader) {
		unsolicited := false
		for {
			r, err := http.ReadRequest(reader)
			if err != nil {
				if unsolicited {
					close(closed)
				}
				return
			}
			caller := r.Header.Get("Argocd-Agent-Caller")
			_, _ = fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", len(caller))
			if r.Method == http.MethodHead {
				<-asked
				_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil")
				unsolicited = true
				continue
			}
			_, _ = io.WriteString(conn, caller)
		}
	})
	response, _ := do(t, h.client(t, allAgents, true), h.request(t, http.MethodHead, "/agents/a/api", http.NoBody))
	require.Equal(t, http.StatusOK, response.StatusCode)
	close(asked)
	<-closed
	for range 2 {
		_, body := h.get(t, h.client(t, "a", true), "/api")
		require.Equal(t, "a", body)
	}
}

// argocd-server would follow a redirect.
func TestRedirectOfAnAgentIsABadGateway(t *testing.T) {
	t.Parallel()
	h := open(t)
	for _, code := range []int{301, 302, 303, 307, 308} {
		name := fmt.Sprint("a", code)
		h.raw(t, name, func(conn net.Conn, reader *bufio.Reader) {
			if _, err := http.ReadRequest(reader); err == nil {
				_, _ = fmt.Fprintf(conn, "HTTP/1.1 %d Elsewhere\r\nLocation: http://169.254.169.254/\r\nContent-Length: 0\r\n\r\n", code)
			}
		})
		client := h.client(t, name, false)
		client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
		response, body := do(t, client, h.request(t, "GET", "/api/v1/namespaces/x/pods/y", nil))
		requireStatus(t, response, body, http.StatusBadGateway, "BadGateway", "redirects")
		require.Empty(t, response.Header.Get("Location"))
	}
}

func TestTruncatedResponseIsAborted(t *testing.T) {
	t.Parallel()
	for name, head := range map[string]string{
		"chunked": "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", "of known length": "Content-Length: 10\r\n\r\nhello",
	} {
		t.Run(name, func(t *testing.T) {
			both(t, func(t *testing.T, http2 bool) {
				h := open(t)
				h.raw(t, "a", func(conn net.Conn, reader *bufio.Reader) {
					_, _ = http.ReadRequest(reader)
					_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\n"+head)
				})
				response, err := h.client(t, "a", http2).Do(h.request(t, http.MethodGet, "/api", http.NoBody))
				if err == nil {
					defer response.Body.Close()
					_, err = io.ReadAll(response.Body)
				}
				require.Error(t, err)
				eventually(t, func() bool { return h.counted(t, "argocd_kubeproxy_requests_total", "a", "aborted", "GET") == 1 })
			})
		})
	}
}

func TestMalformedResponseIsABadGateway(t *testing.T) {
	t.Parallel()
	h := open(t)
	h.raw(t, "a", func(conn net.Conn, reader *bufio.Reader) {
		_, _ = http.ReadRequest(reader)
		_, _ = io.WriteString(conn, "SSH-2.0-OpenSSH\r\n")
	})
	response, body := h.get(t, h.client(t, "a", true), "/api")
	requireStatus(t, response, body, http.StatusBadGateway, "BadGateway", "malformed")
}

// What the agent sends to a caller that does not read is bounded.
func TestSlowReaderDoesNotBlockOthers(t *testing.T) {
	t.Parallel()
	h := open(t)
	var written atomic.Int64
	h.agent(t, "a", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/quick" {
			fmt.Fprint(w, "quick")
			return
		}
		for chunk := make([]byte, 64<<10); r.Context().Err() == nil; {
			n, err := w.Write(chunk)
			if written.Add(int64(n)); err != nil {
				return
			}
		}
	})
	both(t, func(t *testing.T, http2 bool) {
		client := h.client(t, "a", http2)
		response, err := client.Do(h.request(t, http.MethodGet, "/endless", http.NoBody))
		require.NoError(t, err)
		defer response.Body.Close()
		last := int64(-1)
		for at := written.Load(); at != last; at = written.Load() { // until nothing more goes in
			last = at
			<-time.After(200 * time.Millisecond)
			_, body := h.get(t, client, "/quick")
			require.Equal(t, "quick", body)
		}
		require.Less(t, last, int64(64<<20))
	})
}

func TestRevokedCertificateEndsWatchesAndConnections(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, http2 bool) {
		h := open(t)
		h.agent(t, "a", func(w http.ResponseWriter, r *http.Request) {
			_ = http.NewResponseController(w).Flush()
			if r.URL.Query().Has("watch") {
				<-r.Context().Done()
			}
		})
		client := h.client(t, "a", http2)
		watch, err := client.Do(h.request(t, http.MethodGet, "/api?watch=1", http.NoBody))
		require.NoError(t, err)
		defer watch.Body.Close()
		conn := h.dialTLS(t, "a") // made before
		reader := bufio.NewReader(conn)
		ask := func() (answer, string) {
			_, err := io.WriteString(conn, "GET /api HTTP/1.1\r\nHost: x\r\n\r\n")
			require.NoError(t, err)
			response, err := http.ReadResponse(reader, nil)
			require.NoError(t, err)
			return read(t, response)
		}
		response, _ := ask()
		require.Equal(t, http.StatusOK, response.StatusCode)

		changed := h.material.Changed()
		h.trust(newCA(t, "other"))
		<-changed
		_, err = io.ReadAll(watch.Body)
		require.Error(t, err, "the watch ends, and not as if it were whole")
		response, body := ask()
		requireStatus(t, response, body, http.StatusUnauthorized, "Unauthorized", "none of the CAs trusted here")
		require.True(t, response.Close, "a new connection is needed")
	})
}

func TestWatchEndsWhenTheCertificateExpires(t *testing.T) {
	t.Parallel()
	h := open(t)
	h.agent(t, "a", func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	for life := 2 * time.Second; ; life *= 2 {
		end := time.Now().Add(life).Truncate(time.Second) // as it is written down
		certificate := h.certificate(t, "a", pki.Validity{NotBefore: time.Now().Add(-time.Hour), NotAfter: end})
		watch, err := h.clientOf(t, h.config(certificate), true).Do(h.request(t, http.MethodGet, "/api?watch=1", http.NoBody))
		late := !time.Now().Before(end) && life < time.Minute // this machine took longer than the certificate lives
		if late && err != nil {
			continue
		}
		require.NoError(t, err)
		defer watch.Body.Close()
		if late && watch.StatusCode == http.StatusUnauthorized {
			continue
		}
		require.Equal(t, http.StatusOK, watch.StatusCode)
		_, err = io.ReadAll(watch.Body)
		require.Error(t, err)
		require.NotErrorIs(t, err, context.DeadlineExceeded, "not that of the request")
		return
	}
}

func TestShutdownWaitsForOpenRequests(t *testing.T) {
	t.Parallel()
	h := open(t)
	asked := make(chan struct{}, 1)
	release := make(chan struct{})
	h.agent(t, "a", func(w http.ResponseWriter, _ *http.Request) {
		asked <- struct{}{}
		<-release
		fmt.Fprint(w, "done")
	})
	client := h.client(t, "a", false)
	answered := make(chan string, 1)
	r := h.request(t, http.MethodGet, "/api", http.NoBody)
	go func() {
		response, err := client.Do(r)
		if err != nil {
			answered <- err.Error()
			return
		}
		defer response.Body.Close()
		body, _ := io.ReadAll(response.Body)
		answered <- string(body)
	}()
	<-asked
	h.stop()
	close(release)
	require.Equal(t, "done", <-answered, "what ends by itself is waited for")
	require.NoError(t, <-h.stopped)
	_, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", h.address)
	require.Error(t, err)
}
