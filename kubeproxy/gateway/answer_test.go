package gateway_test

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A spoke whose API server never ends an answer does not fill the memory of argocd-server.
func TestAnswerWithoutEndIsCutOff(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, http2 bool) {
		h := open(t)
		gone := make(chan struct{})
		h.agent(t, "a", func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/announced" {
				w.Header().Set("Content-Length", strconv.Itoa(maxResponse+1))
				return
			}
			defer close(gone)
			for piece := make([]byte, 1<<20); ; {
				if _, err := w.Write(piece); err != nil {
					return
				}
			}
		})
		client := h.client(t, "a", http2)
		response, err := client.Do(h.request(t, http.MethodGet, "/api/v1/pods", http.NoBody))
		require.NoError(t, err)
		n, err := io.Copy(io.Discard, response.Body)
		require.NoError(t, response.Body.Close())
		require.Error(t, err, "nobody takes it for the whole")
		require.LessOrEqual(t, n, int64(maxResponse))
		<-gone
		require.Equal(t, 1, strings.Count(h.log.String(), "its answer is larger than 16 MiB"))

		announced, body := do(t, client, h.request(t, http.MethodGet, "/announced", http.NoBody))
		requireStatus(t, announced, body, http.StatusBadGateway, "BadGateway", "raise --max-response-size")
	})
}

// What is compressed stays so, and is bounded by what it inflates to.
func TestCompressedAnswerIsPassedOnWithinTheBound(t *testing.T) {
	t.Parallel()
	h := open(t)
	zip := func(size int) []byte {
		var packed bytes.Buffer
		writer := gzip.NewWriter(&packed)
		_, err := writer.Write(make([]byte, size))
		require.NoError(t, err)
		require.NoError(t, writer.Close())
		return packed.Bytes()
	}
	answers := map[string][]byte{
		"/small": zip(maxResponse), "/large": zip(maxResponse + 1), "/huge": zip(8 * maxResponse), "/malformed": []byte("no gzip"), "/empty": nil,
		"/several": append(zip(maxResponse/2), zip(maxResponse)...), "/cut": zip(maxResponse)[:100],
	}
	h.agent(t, "a", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Encoding", "GZip")
		_, _ = w.Write(answers[r.URL.Path])
	})
	client := h.client(t, "a", true)
	for path, sent := range answers {
		r := h.request(t, http.MethodGet, path, http.NoBody)
		r.Header.Set("Accept-Encoding", "gzip") // so that the client inflates nothing
		response, err := client.Do(r)
		require.NoError(t, err)
		got, err := io.ReadAll(response.Body)
		require.NoError(t, response.Body.Close())
		switch path {
		case "/large", "/huge", "/several":
			require.Error(t, err, path)
		default:
			require.NoError(t, err, path)
			require.True(t, bytes.Equal(sent, got), path)
			require.Equal(t, "GZip", response.Header.Get("Content-Encoding"))
		}
	}
	require.Equal(t, 3, strings.Count(h.log.String(), "its answer is larger than 16 MiB"))
}

// A list of nothings, of some kilobytes as it is sent, becomes gigabytes of Events in argocd-server.
func TestAnswerThatBecomesLargeIsCutOff(t *testing.T) {
	t.Parallel()
	h := open(t)
	bomb := `{"items":[` + strings.Repeat("null,", 1<<20) + "null]}"
	honest := `{"items":[` + strings.Repeat(`{"metadata":{"name":"berlin","labels":{"app":"web"}},"status":{"phase":"Running"}},`, 10_000) + "{}]}"
	var packed bytes.Buffer
	writer := gzip.NewWriter(&packed)
	_, err := writer.Write([]byte(bomb))
	require.NoError(t, err)
	require.NoError(t, writer.Close())
	h.agent(t, "a", func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/api/v1/packed":
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = w.Write(packed.Bytes())
		case "/api/v1/honest":
			_, _ = io.WriteString(w, honest)
		default:
			w.Header().Set("Content-Type", "application/octet-stream") // what it says it is changes nothing
			_, _ = io.WriteString(w, bomb)
		}
	})
	client := h.client(t, "a", true)
	read := func(path string) error {
		response, err := client.Do(h.request(t, http.MethodGet, path, http.NoBody))
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, response.Body)
		require.NoError(t, response.Body.Close())
		return err
	}
	// Names of objects and namespaces do not make a stream of it.
	paths := []string{"/api/v1/packed", "/api/v1/plain", "/api/v1/namespaces/proxy/configmaps/log", "/apis/apps/v1/namespaces/watch/deployments"}
	for _, path := range paths {
		require.Error(t, read(path), path)
	}
	require.NoError(t, read("/api/v1/honest"))
	require.NoError(t, read("/api/v1/nodes/n/proxy/metrics"), "those are read piece by piece")
	require.Equal(t, len(paths), strings.Count(h.log.String(), "takes more than 64 MiB of memory when it is decoded"), h.log.String())
}

// Clients of Kubernetes decode what an answer says it is, and two bytes of protobuf are an object, too.
func TestAnswerOfATypeThatWasNotAskedForIsRefused(t *testing.T) {
	t.Parallel()
	h := open(t)
	const protobuf = "application/vnd.kubernetes.protobuf"
	h.agent(t, "a", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", r.URL.Query().Get("type"))
	})
	client := h.client(t, "a", true)
	for _, found := range []string{protobuf, "application/YAML", "application/cbor"} {
		r := h.request(t, http.MethodGet, "/api/v1/events?type="+found, http.NoBody)
		r.Header.Set("Accept", "application/json, */*") // as client-go has it
		response, body := do(t, client, r)
		requireStatus(t, response, body, http.StatusBadGateway, "BadGateway", "which was not asked for")
	}
	r := h.request(t, http.MethodGet, "/api/v1/events?type="+protobuf, http.NoBody)
	r.Header.Set("Accept", protobuf+",application/json")
	response, _ := do(t, client, r)
	require.Equal(t, http.StatusOK, response.StatusCode)
}

func TestTooLargeHeadersOfAnAnswerAreRefused(t *testing.T) {
	t.Parallel()
	h := open(t)
	h.agent(t, "a", func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Big", strings.Repeat("x", 1100<<10)) })
	response, body := do(t, h.client(t, "a", true), h.request(t, http.MethodGet, "/api", http.NoBody))
	requireStatus(t, response, body, http.StatusBadGateway, "BadGateway", "response headers exceeded")
}
