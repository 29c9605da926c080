package gateway

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/bubble"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/kubeproxy/callers"
)

// slowAgent is an agent that says how many bytes each request has, after release to those that ask it to be slow.
type slowAgent struct {
	release chan struct{}
	serving sync.WaitGroup
}

// dial implements Dial.
func (a *slowAgent) dial(context.Context, string) (net.Conn, error) {
	near, far := net.Pipe()
	a.serving.Go(func() {
		defer far.Close()
		reader := bufio.NewReader(far)
		for err := error(nil); err == nil; {
			err = a.answer(far, reader)
		}
	})
	return near, nil
}

func (a *slowAgent) answer(conn net.Conn, reader *bufio.Reader) error {
	r, err := http.ReadRequest(reader)
	if err != nil {
		return err
	}
	n, err := io.Copy(io.Discard, r.Body)
	if err != nil {
		return err
	}
	if r.URL.Query().Has("slow") {
		<-a.release
	}
	text := fmt.Sprint(n)
	_, err = fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(text), text)
	return err
}

// The timeout counts only while the gateway waits for the agent, and not for watches, logs and proxied requests.
func TestTimeoutSparesUploadsWatchesAndLogs(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		const limit = 3 * time.Second
		agent := &slowAgent{release: make(chan struct{})}
		g := New(Options{
			Dial: agent.dial, Timeout: limit, MetricsAgents: 1, Registerer: prometheus.NewRegistry(), Logger: slog.New(slog.DiscardHandler),
		})
		ask := func(method, target string, body io.Reader) *httptest.ResponseRecorder {
			r := httptest.NewRequestWithContext(t.Context(), method, target, body)
			f := &forwarded{call: callers.Call{Agent: "a", Path: r.URL.Path}, kind: kindOf(r, r.URL.Path)}
			answer := httptest.NewRecorder()
			g.forward(answer, r.WithContext(context.WithValue(r.Context(), forwardedKey{}, f)), f)
			return answer
		}
		for method, body := range map[string]string{http.MethodGet: "", http.MethodPost: "x"} {
			began := time.Now()
			answer := ask(method, "/api?slow", strings.NewReader(body))
			require.Equal(t, http.StatusGatewayTimeout, answer.Code)
			require.Contains(t, answer.Body.String(), "did not answer within 3s")
			require.Equal(t, limit, time.Since(began))
		}

		reader, writer := io.Pipe()
		go func() {
			for range 3 {
				<-time.After(2 * limit)
				_, _ = io.WriteString(writer, "x")
			}
			writer.Close()
		}()
		answer := ask(http.MethodPost, "/api", reader)
		require.Equal(t, http.StatusOK, answer.Code)
		require.Equal(t, "3", answer.Body.String())

		var asking sync.WaitGroup
		for _, target := range []string{
			"/api/v1/pods?watch=1&slow", "/api/v1/pods?watch&slow", "/api/v1/watch/pods?x=1&slow", "/api/v1/namespaces/x/pods/y/log?follow=true&slow",
			"/api/v1/namespaces/x/pods/y/log?previous=false&slow", "/api/v1/namespaces/x/services/y/proxy/long?slow",
		} {
			asking.Go(func() {
				if code := ask(http.MethodGet, target, http.NoBody).Code; code != http.StatusOK {
					t.Errorf("%s: %d", target, code)
				}
			})
		}
		<-time.After(10 * limit)
		close(agent.release)
		asking.Wait()
		require.Equal(t, http.StatusOK, ask(http.MethodGet, "/api?watch=false", http.NoBody).Code)
		g.close()
		agent.serving.Wait()
	})
}
