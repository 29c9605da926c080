package gateway_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRequestsAreForwardedUnchanged(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, http2 bool) {
		h := open(t)
		seen := make(chan *http.Request, 1)
		bodies := make(chan []byte, 1)
		h.agent(t, "a", func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			seen <- r
			bodies <- body
			w.Header().Set("Content-Type", "application/vnd.kubernetes.protobuf")
			w.Header()["Warning"] = []string{`299 - "one"`, `299 - "two"`}
			w.WriteHeader(http.StatusCreated)
			_, _ = w.Write([]byte("k8s\x00answer"))
		})
		client := h.client(t, "a", http2)
		for _, method := range []string{"GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "HEAD"} {
			for _, target := range []string{
				"/api/v1/namespaces/x/pods/y/status?fieldManager=a%2Fb&force=true",
				"/apis/apps/v1/deployments?labelSelector=a%20in%20(b,c)&x=1;y=2&bad=%zz&repeated=1&repeated=2&",
				"/api/v1/namespaces/x/services/http:y:80/proxy/a%2Fb//c%2fd;e=1,2/%C3%A4?",
				"/openapi/v3/apis/apps/v1?hash=00FF", "/version", "/", "/api%20v1/%7Eme/~me",
			} {
				sent := []byte("body of " + method)
				if method == "GET" || method == "HEAD" || method == "OPTIONS" {
					sent = nil
				}
				r := h.request(t, method, target, bytes.NewReader(sent))
				r.Header.Set("Content-Type", "application/apply-patch+yaml")
				r.Header.Set("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io,application/vnd.kubernetes.protobuf")
				r.Header["Impersonate-User"] = []string{"jane"}
				r.Header["Impersonate-Group"] = []string{"one", "two"}
				r.Header["Impersonate-Extra-Scopes"] = []string{"all"}
				response, body := do(t, client, r)
				require.Equal(t, http.StatusCreated, response.StatusCode)
				require.Equal(t, []string{`299 - "one"`, `299 - "two"`}, response.Header["Warning"])
				require.Equal(t, "application/vnd.kubernetes.protobuf", response.Header.Get("Content-Type"))
				if method != "HEAD" {
					require.Equal(t, "k8s\x00answer", body)
				}

				got := <-seen
				require.Equal(t, method, got.Method)
				require.Equal(t, target, got.RequestURI)
				require.Equal(t, string(sent), string(<-bodies))
				require.Equal(t, int64(len(sent)), got.ContentLength)
				require.Equal(t, "a", got.Host)
				for _, name := range []string{"Content-Type", "Accept", "Impersonate-User", "Impersonate-Group", "Impersonate-Extra-Scopes"} {
					require.Equal(t, r.Header[name], got.Header[name])
				}
				require.Equal(t, []string{"a"}, got.Header["Argocd-Agent-Caller"])
				require.NotContains(t, got.Header, "Accept-Encoding")
				require.NotContains(t, got.Header, "X-Forwarded-For")
			}
		}
	})
}

func TestAgentPathPrefixIsRemoved(t *testing.T) {
	t.Parallel()
	h := open(t)
	for _, name := range []string{"a", "b"} {
		h.agent(t, name, func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprint(w, name, " ", r.RequestURI, " ", r.Header.Get("Argocd-Agent-Caller"))
		})
	}
	client := h.client(t, allAgents, true)
	for target, want := range map[string]string{
		"/agents/a/api/v1/x%2Fy?z=%2F": "a /api/v1/x%2Fy?z=%2F " + allAgents,
		"/agents/b/api":                "b /api " + allAgents,
		"/agents/b":                    "b / " + allAgents,
		"/agents/b/":                   "b / " + allAgents,
		"/agents/b/agents/a/api":       "b /agents/a/api " + allAgents,
	} {
		_, body := h.get(t, client, target)
		require.Equal(t, want, body)
	}
	_, body := h.get(t, h.client(t, "a", false), "/agents/a/api")
	require.Equal(t, "a /api a", body, "its own name is allowed to everyone")
}

func TestWatchIsFlushedAndCancelled(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, http2 bool) {
		h := open(t)
		more, gone := make(chan string), make(chan struct{})
		h.agent(t, "a", func(w http.ResponseWriter, r *http.Request) {
			defer close(gone)
			w.WriteHeader(http.StatusOK)
			_ = http.NewResponseController(w).Flush()
			for {
				select {
				case line := <-more:
					fmt.Fprint(w, line)
					_ = http.NewResponseController(w).Flush()
				case <-r.Context().Done():
					return
				}
			}
		})
		r := h.request(t, http.MethodGet, "/api/v1/pods?watch=true", http.NoBody)
		ctx, cancel := context.WithCancel(r.Context())
		response, err := h.client(t, "a", http2).Do(r.WithContext(ctx))
		require.NoError(t, err)
		defer response.Body.Close()
		buffer := make([]byte, 100)
		for _, line := range []string{"one\n", "two\n"} {
			more <- line
			n, err := response.Body.Read(buffer)
			require.NoError(t, err)
			require.Equal(t, line, string(buffer[:n]))
		}
		require.Equal(t, 1.0, h.counted(t, "argocd_kubeproxy_open_requests", "stream"))
		cancel()
		<-gone
		eventually(t, func() bool { return h.counted(t, "argocd_kubeproxy_open_requests", "stream") == 0 })
	})
}

func TestCancelledRequestIsCancelledAtTheAgent(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, http2 bool) {
		h := open(t)
		asked, gone := make(chan struct{}), make(chan struct{})
		h.agent(t, "a", func(_ http.ResponseWriter, r *http.Request) {
			close(asked)
			<-r.Context().Done()
			close(gone)
		})
		r := h.request(t, http.MethodGet, "/api", http.NoBody)
		ctx, cancel := context.WithCancel(r.Context())
		client := h.client(t, "a", http2)
		failed := make(chan error, 1)
		go func() {
			response, err := client.Do(r.WithContext(ctx))
			if err == nil {
				response.Body.Close()
			}
			failed <- err
		}()
		<-asked
		cancel()
		require.ErrorIs(t, <-failed, context.Canceled)
		<-gone
		eventually(t, func() bool { return h.counted(t, "argocd_kubeproxy_requests_total", "a", "4xx", "GET") == 1 })
	})
}

// Large bodies stream in both directions at once.
func TestBodiesAndTrailersStream(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, http2 bool) {
		h := open(t)
		h.agent(t, "a", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Trailer", "X-Sum")
			_ = http.NewResponseController(w).EnableFullDuplex()
			n, err := io.Copy(w, r.Body)
			w.Header().Set("X-Sum", fmt.Sprint(n, err, r.Trailer.Get("X-Client")))
		})
		sent := make([]byte, 3<<20)
		_, err := rand.Read(sent)
		require.NoError(t, err)
		r := h.request(t, http.MethodPost, "/api/v1/x", io.MultiReader(bytes.NewReader(sent))) // of no known length
		r.Trailer = http.Header{"X-Client": {"end"}}
		response, body := do(t, h.client(t, "a", http2), r)
		require.True(t, bytes.Equal(sent, []byte(body)))
		require.Equal(t, fmt.Sprint(len(sent), nil, "end"), response.Trailer.Get("X-Sum"))
	})
}

func TestConnectionsToAgentsAreReused(t *testing.T) {
	t.Parallel()
	h := open(t)
	h.agent(t, "a", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "a") })
	h.agent(t, "b", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "b") })
	client := h.client(t, allAgents, true)
	for range 20 {
		for _, name := range []string{"a", "b"} {
			_, body := h.get(t, client, "/agents/"+name+"/api")
			require.Equal(t, name, body)
		}
	}
	require.Equal(t, 2, h.dials)
	require.Equal(t, 20.0, h.counted(t, "argocd_kubeproxy_requests_total", "a", "2xx", "GET"))
	require.Equal(t, 40.0, h.counted(t, "argocd_kubeproxy_request_duration_seconds", "GET"))
}

// Connections that are in use when they are to be left go back to no pool: the principal that they go through waits for them.
func TestConnectionInUseIsClosedOnceItIsLeft(t *testing.T) {
	t.Parallel()
	h := open(t)
	asked, answered, closed := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	h.raw(t, "a", func(conn net.Conn, reader *bufio.Reader) {
		_, err := http.ReadRequest(reader)
		asked <- struct{}{}
		<-answered
		if err == nil {
			_, err = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
		}
		if err == nil {
			_, err = reader.ReadByte()
		}
		closed <- err
	})
	client, ended := h.client(t, allAgents, false), make(chan error, 1)
	for range 2 {
		request := h.request(t, http.MethodGet, "/agents/a/version", http.NoBody)
		go func() {
			response, err := client.Do(request)
			if err == nil {
				err = response.Body.Close()
			}
			ended <- err
		}()
		<-asked
		h.gateway.Leave()
		answered <- struct{}{}
		require.NoError(t, <-ended)
		select {
		case err := <-closed:
			require.ErrorIs(t, err, io.EOF)
		case <-withTimeout(t).Done():
			require.FailNow(t, "the connection stays open")
		}
	}
}
