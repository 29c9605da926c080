package apiproxy_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/pki"
)

// An authority's file is replaced before what is in it expires.
func TestTheAPIServersAuthorityIsReadAnew(t *testing.T) {
	api := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "here") }))
	defer api.Close()
	another, err := pki.NewAuthority(pki.AuthorityOptions{CommonName: "another"})
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "ca.crt")
	require.NoError(t, os.WriteFile(file, another.PEM().Certificate, 0o600))
	s := before(t, &rest.Config{Host: api.URL, TLSClientConfig: rest.TLSClientConfig{CAFile: file}})
	answer, text := s.ask(t, "GET", pod, http.NoBody)
	require.Equal(t, http.StatusBadGateway, answer.code)
	require.Contains(t, status(t, answer, text).Message, "certificate")

	require.NoError(t, os.WriteFile(file, authority(api), 0o600))
	answer, text = s.ask(t, "GET", pod, http.NoBody)
	require.Equal(t, http.StatusOK, answer.code, text)
	require.Equal(t, "here", text)
}

func TestTheAPIServerMayBeBehindAProxy(t *testing.T) {
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
