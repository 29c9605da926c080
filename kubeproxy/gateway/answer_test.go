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

func TestTooLargeHeadersOfAnAnswerAreRefused(t *testing.T) {
	t.Parallel()
	h := open(t)
	h.agent(t, "a", func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Big", strings.Repeat("x", 1100<<10)) })
	response, body := do(t, h.client(t, "a", true), h.request(t, http.MethodGet, "/api", http.NoBody))
	requireStatus(t, response, body, http.StatusBadGateway, "BadGateway", "response headers exceeded")
}
