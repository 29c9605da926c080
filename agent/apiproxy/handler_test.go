package apiproxy_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
)

const waitFor, tick = 2 * time.Minute, 5 * time.Millisecond

// both runs a test against API servers that speak HTTP/1.1 and HTTP/2.
func both(t *testing.T, test func(t *testing.T, http2 bool)) {
	t.Helper()
	for name, http2 := range map[string]bool{"HTTP/1.1": false, "HTTP/2": true} {
		t.Run(name, func(t *testing.T) { test(t, http2) })
	}
}

func TestRequestsAndResponsesAreForwardedUnchanged(t *testing.T) {
	both(t, func(t *testing.T, http2 bool) {
		s := newSpoke(t, http2, func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			w.Header().Set("Content-Type", "application/vnd.kubernetes.protobuf")
			w.Header().Add("Warning", "299 - one")
			w.Header().Add("Warning", "299 - two")
			w.Header().Set("Trailer", "X-End")
			w.WriteHeader(http.StatusCreated)
			fmt.Fprint(w, r.Method, " ", r.RequestURI, " ", r.Header["Accept"], " ", r.Header.Get("Content-Type"), " ",
				r.Header.Get("Authorization"), " ", r.Header.Get("Accept-Encoding"), " ", string(body))
			w.(http.Flusher).Flush() // or the response would have a Content-Length, and HTTP/1.1 has no trailers then
			w.Header().Set("X-End", "5")
		})
		const target = "/apis/apps/v1/namespaces/good/deployments/d?fieldManager=a%2Fb&force=true&x=%20y+z"
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPatch, s.url+target, io.MultiReader(strings.NewReader("{ }")))
		require.NoError(t, err)
		r.Header["Accept"] = []string{"application/json;as=Table", "application/json"}
		r.Header.Set("Content-Type", "application/apply-patch+yaml")
		r.Header.Set("Authorization", "Bearer hubs")
		answer, err := s.client.Do(r)
		require.NoError(t, err)
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		require.Equal(t, http.StatusCreated, answer.StatusCode)
		require.Equal(t, "PATCH "+target+" [application/json;as=Table application/json] application/apply-patch+yaml Bearer agents-own  { }", string(text))
		require.Equal(t, "application/vnd.kubernetes.protobuf", answer.Header.Get("Content-Type"))
		require.Len(t, answer.Header["Warning"], 2)
		require.Equal(t, "5", answer.Trailer.Get("X-End"))
	})
}

func TestErrorOfTheAPIServerIsForwarded(t *testing.T) {
	const conflict = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Conflict","code":409}`
	s := newSpoke(t, true, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusConflict)
		fmt.Fprint(w, conflict)
	})
	answer, text := s.ask(t, "PUT", pod, strings.NewReader("{}"))
	require.Equal(t, http.StatusConflict, answer.code)
	require.Len(t, text, len(conflict))
	require.JSONEq(t, conflict, text)
}

func TestCredentialsOfTheHubAreDropped(t *testing.T) {
	s := newSpoke(t, true, func(w http.ResponseWriter, r *http.Request) {
		_ = r.Header.Write(w)
	})
	_, text := s.ask(t, "GET", pod, http.NoBody, "Authorization", "Bearer hubs", "Cookie", "a=b", "X-Remote-User", "system:admin", "X-Remote-Group", "system:masters",
		"X-Remote-Extra-Scopes", "all", "X-Forwarded-For", "1.2.3.4", "X-Forwarded-Client-Cert", "By=x", "Forwarded", "for=1.2.3.4", "X-Real-Ip", "1.2.3.4",
		"Argocd-Agent-Caller", "argocd-server", "Proxy-Authorization", "Basic x", "Idempotency-Key", "k", "X-Idempotency-Key", "k", "Te", "deflate",
		"User-Agent", "argocd-server/v3", "Traceparent", "00-1-2-01", "Kubectl-Command", "get")
	require.NotContains(t, text, "hubs")
	for _, gone := range []string{"Cookie", "X-Remote", "X-Forwarded", "Forwarded", "X-Real-Ip", "Argocd-Agent", "Proxy-", "Idempotency", "Te:"} {
		require.NotContains(t, text, gone)
	}
	for _, kept := range []string{"User-Agent: argocd-server/v3", "Traceparent: 00-1-2-01", "Kubectl-Command: get", "Authorization: Bearer agents-own"} {
		require.Contains(t, text, kept)
	}
}

func TestImpersonationNeedsThePolicy(t *testing.T) {
	s := newSpoke(t, true, func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, r.Header.Get("Impersonate-User"), r.Header["Impersonate-Group"], r.Header.Get("Impersonate-Extra-Scopes"),
			r.Header.Get("Impersonate-Uid"), r.Header.Get("Impersonate-Other"))
	})
	as := []string{"Impersonate-User", "jane", "Impersonate-Group", "a", "Impersonate-Group", "b", "Impersonate-Extra-Scopes", "c"}
	_, text := s.ask(t, "GET", "/api/v1/namespaces/anybody/pods/p", http.NoBody, as...)
	require.Equal(t, "jane[a b]c", text)
	require.Contains(t, s.log.last(), "impersonated_user=jane impersonated_groups=a,b")
	_, text = s.ask(t, "DELETE", "/api/v1/namespaces/recorded/pods/p", http.NoBody, append(as, "Impersonate-Uid", "u", "impersonate-other", "o")...)
	require.Equal(t, "[]", text, "none of it reaches the API server")
	require.Contains(t, s.log.last(), "level=INFO")
	require.Contains(t, s.log.last(), "impersonated_user=jane impersonated_groups=a,b")
	answer, text := s.ask(t, "GET", pod, http.NoBody, as...)
	require.Equal(t, http.StatusForbidden, answer.code)
	require.Contains(t, status(t, answer, text).Message, "nobody may act as another")
}

func TestAmbiguousHeadersAndPathsAreRefused(t *testing.T) {
	var reached atomic.Int64
	s := newSpoke(t, true, func(http.ResponseWriter, *http.Request) { reached.Add(1) })
	for _, header := range [][]string{
		{"Authorization", "Bearer a", "Authorization", "Bearer b"},
		{"Impersonate-User", "a", "Impersonate-User", "b"},
		{"Content-Type", "application/json", "Content-Type", "application/yaml"},
		{"Argocd-Agent-Caller", "a", "Argocd-Agent-Caller", "b"},
		{"Connection", "Impersonate-User", "Impersonate-User", "a"},
		{"Connection", "keep-alive, X-Remote-User"},
		{"Connection", "Upgrade", "Upgrade", "h2c"},
		{"Connection", "Upgrade", "Upgrade", "websocket", "Sec-WebSocket-Protocol", "v5.channel.k8s.io, base64url.bearer.authorization.k8s.io.YQ"},
	} {
		answer, text := s.ask(t, "GET", "/api/v1/namespaces/anybody/pods/p", http.NoBody, header...)
		require.Equal(t, http.StatusBadRequest, answer.code, "%v", header)
		status(t, answer, text)
		require.Contains(t, s.log.last(), join("level=INFO", `msg="Request from the hub"`))
		require.Contains(t, s.log.last(), "decision=denied code=400")
	}
	for _, target := range []string{"/api/v1//namespaces/good/pods/p", "/api/v1/namespaces/bad/../good/pods/p", pod + "%2fexec", pod + "/", "/api/v1/watch/pods"} {
		answer, _ := s.ask(t, "GET", target, http.NoBody)
		require.Equal(t, http.StatusBadRequest, answer.code, target)
	}
	require.Zero(t, reached.Load())
}

func TestDeniedAndUndecidedRequestsAreStatuses(t *testing.T) {
	s := newSpoke(t, true, func(http.ResponseWriter, *http.Request) {})
	answer, text := s.ask(t, "DELETE", "/api/v1/namespaces/bad/pods/p", http.NoBody)
	said := status(t, answer, text)
	require.Equal(t, http.StatusForbidden, answer.code)
	require.Equal(t, "forbidden: it is bad", said.Message)
	require.Equal(t, "p", said.Details.Name)

	answer, text = s.ask(t, "GET", "/api/v1/namespaces/unknown/pods/p", http.NoBody)
	require.Equal(t, http.StatusServiceUnavailable, answer.code)
	require.Equal(t, "1", answer.header.Get("Retry-After"))
	require.Contains(t, status(t, answer, text).Message, "redis is away")

	answer, text = s.ask(t, "OPTIONS", pod, http.NoBody)
	require.Equal(t, http.StatusMethodNotAllowed, answer.code)
	status(t, answer, text)
}

func TestBodyThatThePolicyReadIsForwarded(t *testing.T) {
	s := newSpoke(t, true, func(w http.ResponseWriter, r *http.Request) {
		n, err := io.Copy(io.Discard, r.Body)
		fmt.Fprint(w, r.ContentLength, " ", n, " ", err)
	})
	const target = "/api/v1/namespaces/read/pods"
	body := bytes.Repeat([]byte("x"), 3<<20)
	_, text := s.ask(t, "POST", target, bytes.NewReader(body))
	require.Equal(t, "3145728 3145728 <nil>", text)
	_, text = s.ask(t, "POST", target, io.MultiReader(bytes.NewReader(body)))
	require.Equal(t, "-1 3145728 <nil>", text)
	answer, text := s.ask(t, "POST", target, bytes.NewReader(append(body, 'x')))
	require.Equal(t, http.StatusRequestEntityTooLarge, answer.code)
	status(t, answer, text)
}

func TestTooManyBufferedBodiesAreRefused(t *testing.T) {
	const most = 16
	arrived, release := make(chan struct{}), make(chan struct{})
	s := newSpoke(t, true, func(http.ResponseWriter, *http.Request) {
		arrived <- struct{}{}
		<-release
	})
	codes := make(chan int, most)
	create := func() {
		answer, err := s.client.Post(s.url+"/api/v1/namespaces/read/pods", "application/json", strings.NewReader("{}"))
		if err != nil {
			codes <- 0
			return
		}
		answer.Body.Close()
		codes <- answer.StatusCode
	}
	for range most {
		go create()
		<-arrived
	}
	create()
	require.Equal(t, http.StatusTooManyRequests, <-codes)
	close(release)
	for range most {
		require.Equal(t, http.StatusOK, <-codes)
	}
	go create()
	<-arrived
	require.Equal(t, http.StatusOK, <-codes)
}

func TestWatchIsFlushedAndCancelled(t *testing.T) {
	both(t, func(t *testing.T, http2 bool) {
		next, gone := make(chan string), make(chan struct{})
		s := newSpoke(t, http2, func(w http.ResponseWriter, r *http.Request) {
			defer close(gone)
			for {
				select {
				case line := <-next:
					fmt.Fprintln(w, line)
					w.(http.Flusher).Flush()
				case <-r.Context().Done():
					return
				}
			}
		})
		ctx, cancel := context.WithCancel(t.Context())
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+"/api/v1/namespaces/good/pods?watch=true", http.NoBody)
		require.NoError(t, err)
		go func() { next <- "first" }()
		answer, err := s.client.Do(r)
		require.NoError(t, err)
		defer answer.Body.Close()
		buffer := make([]byte, 100)
		n, err := answer.Body.Read(buffer)
		require.NoError(t, err)
		require.Equal(t, "first\n", string(buffer[:n]))
		next <- "second"
		n, err = answer.Body.Read(buffer)
		require.NoError(t, err)
		require.Equal(t, "second\n", string(buffer[:n]))
		cancel()
		<-gone
		require.Eventually(t, func() bool { return strings.Contains(s.log.last(), "level=DEBUG") }, waitFor, tick)
		require.Contains(t, s.log.last(), "verb=watch decision=allowed code=200")
	})
}

func TestTruncatedResponseOfTheAPIServerIsAborted(t *testing.T) {
	both(t, func(t *testing.T, http2 bool) {
		s := newSpoke(t, http2, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			fmt.Fprint(w, "half")
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		})
		answer, err := s.client.Get(s.url + pod)
		if err == nil {
			_, err = io.ReadAll(answer.Body)
			answer.Body.Close()
		}
		require.Error(t, err)
		require.Eventually(t, func() bool { return strings.Contains(s.log.last(), "decision=failed code=200") }, waitFor, tick)
	})
}

func TestWritesAreNotRetried(t *testing.T) {
	both(t, func(t *testing.T, http2 bool) {
		var writes atomic.Int64
		s := newSpoke(t, http2, func(_ http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodGet {
				return // so that a connection is there already
			}
			writes.Add(1)
			panic(http.ErrAbortHandler)
		})
		for i, body := range []io.Reader{strings.NewReader("{}"), http.NoBody, strings.NewReader("{}")} {
			target := pod + "/exec"
			if i == 2 {
				target = "/api/v1/namespaces/read/pods" // after its body was read for the decision
			}
			writes.Store(0)
			s.ask(t, "GET", pod, http.NoBody)
			answer, text := s.ask(t, "POST", target, body, "Idempotency-Key", "k", "X-Idempotency-Key", "k")
			require.Equal(t, http.StatusBadGateway, answer.code)
			require.Contains(t, status(t, answer, text).Message, "gives no answer")
			require.EqualValues(t, 1, writes.Load())
			require.Contains(t, s.log.last(), "level=INFO")
			require.Contains(t, s.log.last(), "decision=failed code=502")
		}
	})
}

func TestRedirectOfTheAPIServerIsABadGateway(t *testing.T) {
	s := newSpoke(t, true, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "https://internal.example/", http.StatusFound)
	})
	answer, text := s.ask(t, "GET", pod, http.NoBody)
	require.Equal(t, http.StatusBadGateway, answer.code)
	require.NotContains(t, text, "internal.example")
	require.Contains(t, status(t, answer, text).Message, "redirects")
}

func TestUnreachableAPIServer(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, listener.Close())
	s := before(t, &rest.Config{Host: "https://" + listener.Addr().String(), TLSClientConfig: rest.TLSClientConfig{Insecure: true}})
	answer, text := s.ask(t, "GET", pod, http.NoBody)
	require.Equal(t, http.StatusBadGateway, answer.code)
	require.Contains(t, status(t, answer, text).Message, "refused")

	s = before(t, &rest.Config{Host: "http://spoke.test", Dial: func(context.Context, string, string) (net.Conn, error) {
		return nil, fmt.Errorf("dial: %w", context.DeadlineExceeded)
	}})
	answer, text = s.ask(t, "GET", pod, http.NoBody)
	require.Equal(t, http.StatusGatewayTimeout, answer.code)
	status(t, answer, text)
}

func TestAPIServerAddressWithAPath(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.URL.Path) }))
	defer server.Close()
	s := before(t, &rest.Config{Host: server.URL + "/clusters/one/"})
	_, text := s.ask(t, "GET", pod, http.NoBody)
	require.Equal(t, "/clusters/one"+pod, text)
}

func TestLargeBodies(t *testing.T) {
	const size = 8 << 20
	s := newSpoke(t, true, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if _, _ = w.Write(body); len(body) == 0 {
			_, _ = io.CopyN(w, rand.Reader, size)
		}
	})
	_, text := s.ask(t, "GET", pod, http.NoBody)
	require.Len(t, text, size)
	_, same := s.ask(t, "PUT", pod, strings.NewReader(text))
	require.Zero(t, strings.Compare(text, same), "%d bytes", len(same))
}

func BenchmarkSmallGet(b *testing.B) {
	body := bytes.Repeat([]byte("x"), 2000)
	s := newSpoke(b, true, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(body) })
	for b.Loop() {
		s.ask(b, "GET", pod, http.NoBody)
	}
}

func BenchmarkLargeGet(b *testing.B) {
	body := make([]byte, 100<<20)
	s := newSpoke(b, true, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(body) })
	b.SetBytes(int64(len(body)))
	for b.Loop() {
		answer, err := s.client.Get(s.url + pod)
		if err != nil {
			b.Fatal(err)
		}
		n, err := io.Copy(io.Discard, answer.Body)
		if answer.Body.Close(); err != nil || n != int64(len(body)) {
			b.Fatal(n, errors.Unwrap(err))
		}
	}
}
