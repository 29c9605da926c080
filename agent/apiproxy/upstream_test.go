package apiproxy_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/agent/apiproxy"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/bubble"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/pki"
)

// The file of the API server's CA is replaced before what is in it expires.
func TestReplacedCAFileIsReloaded(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		ca, err := pki.NewCA(pki.CAOptions{CommonName: "ca"})
		require.NoError(t, err)
		another, err := pki.NewCA(pki.CAOptions{CommonName: "another"})
		require.NoError(t, err)
		issued, err := ca.IssueServer(pki.ServerOptions{Names: []string{"spoke.example"}})
		require.NoError(t, err)
		pair, err := issued.TLS()
		require.NoError(t, err)
		file := filepath.Join(t.TempDir(), "ca.crt")
		require.NoError(t, os.WriteFile(file, another.PEM().Certificate, 0o600))

		var serving sync.WaitGroup
		defer serving.Wait()
		handler, err := apiproxy.New(apiproxy.Options{
			Config: &rest.Config{
				Host: "https://spoke.example", TLSClientConfig: rest.TLSClientConfig{CAFile: file},
				Dial: func(context.Context, string, string) (net.Conn, error) {
					client, server := net.Pipe()
					serving.Go(func() { answerOnce(tls.Server(server, &tls.Config{Certificates: []tls.Certificate{pair}})) })
					return client, nil
				},
			},
			Policy: &testPolicy{}, Registerer: prometheus.NewRegistry(), Logger: slog.New(slog.DiscardHandler),
		})
		require.NoError(t, err)
		defer handler.Close()
		get := func() *httptest.ResponseRecorder {
			answer := httptest.NewRecorder()
			handler.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodGet, pod, http.NoBody))
			return answer
		}
		require.NotEqual(t, http.StatusOK, get().Code)
		require.NoError(t, os.WriteFile(file, ca.PEM().Certificate, 0o600))
		<-time.After(6 * time.Minute)
		require.Equal(t, http.StatusOK, get().Code)
	})
}

// answerOnce answers one request.
func answerOnce(conn net.Conn) {
	defer conn.Close()
	if _, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 4\r\n\r\nhere")
	}
}

func TestAPIServerBehindAProxy(t *testing.T) {
	var passed atomic.Int32
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		passed.Add(1)
		_, _ = io.WriteString(w, r.URL.String())
	}))
	defer proxy.Close()
	address, err := url.Parse(proxy.URL)
	require.NoError(t, err)
	s := before(t, &rest.Config{Host: "http://spoke.example", Proxy: http.ProxyURL(address)})
	for i, method := range []string{"GET", "DELETE"} {
		_, text := s.ask(t, method, pod, http.NoBody)
		require.Equal(t, "http://spoke.example"+pod, text)
		require.EqualValues(t, i+1, passed.Load())
	}
}
