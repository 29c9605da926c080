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
	// maxBody is the largest object that a decision may depend on: what an API server takes.
	maxBody = 3 << 20
	// bodiesHeld is how many are held in memory at a time. More are refused, and not kept waiting for callers that are slow.
	bodiesHeld = 16
	// bodyTime is how long such a body may take to arrive.
	bodyTime = 30 * time.Second
	// chunk is how much is passed on at a time.
	chunk = 64 << 10
)

// body reads a request's body for a decision, and leaves it to be read again.
type body struct {
	handler *Handler
	request *http.Request
	writer  http.ResponseWriter
	held    bool
}

// read returns the whole body.
func (b *body) read() ([]byte, error) {
	select {
	case b.handler.bodies <- struct{}{}:
		b.held = true
	default:
		return nil, apihttp.Errorf(http.StatusTooManyRequests, "the agent checks too many new objects at this time")
	}
	control := http.NewResponseController(b.writer)
	_ = control.SetReadDeadline(time.Now().Add(bodyTime)) // a connection that has no deadlines has other bounds
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
	b.request.Body = replay{bytes.NewReader(whole), b.request.Body}
	return whole, nil
}

// free gives the body's place to others.
func (b *body) free() {
	if b.held {
		<-b.handler.bodies
	}
}

// replay is a body that was read already.
type replay struct {
	io.Reader
	io.Closer
}
