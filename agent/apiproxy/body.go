package apiproxy

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/apihttp"
)

const (
	// maxBody bounds a request body that the policy reads. It is the API server's own limit.
	maxBody = 3 << 20
	// maxBufferedBodies bounds the request bodies in memory. Requests beyond it are refused rather than queued behind slow
	// callers.
	maxBufferedBodies = 16
	// bodyTimeout is how long such a body may take to arrive.
	bodyTimeout = 30 * time.Second
	// bufferSize is the size of the buffers that copy responses.
	bufferSize = 64 << 10
)

// bufferedBody reads a request's body for the policy, and keeps it for the API server.
type bufferedBody struct {
	handler *Handler
	request *http.Request
	writer  http.ResponseWriter
	counted bool // among the buffered ones
}

// readAll returns the whole body.
func (b *bufferedBody) readAll() ([]byte, error) {
	select {
	case b.handler.buffered <- struct{}{}:
		b.counted = true
	default:
		return nil, apihttp.Errorf(http.StatusTooManyRequests, "the agent checks too many new objects at this time")
	}
	control := http.NewResponseController(b.writer)
	_ = control.SetReadDeadline(time.Now().Add(bodyTimeout)) // a ResponseWriter without deadlines has other limits
	whole, err := io.ReadAll(io.LimitReader(b.request.Body, maxBody+1))
	_ = control.SetReadDeadline(time.Time{})
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, apihttp.Errorf(http.StatusRequestTimeout, "the object takes too long to arrive")
	case err != nil:
		return nil, apihttp.Errorf(http.StatusBadRequest, "the request's body cannot be read: %v", err)
	case len(whole) > maxBody:
		return nil, apihttp.Errorf(http.StatusRequestEntityTooLarge, "the object is larger than %d bytes", maxBody)
	}
	b.request.Body = replayedBody{bytes.NewReader(whole), b.request.Body}
	return whole, nil
}

// release lets another body be buffered.
func (b *bufferedBody) release() {
	if b.counted {
		<-b.handler.buffered
	}
}

// replayedBody is a body that was read before.
type replayedBody struct {
	io.Reader
	io.Closer
}
