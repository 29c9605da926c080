package gateway

import (
	"bufio"
	"compress/gzip"
	"io"
	"net/http"
	"strings"
	"sync/atomic"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/apihttp"
)

// bound bounds the answer of an agent, as it is sent and inflated. Its caller keeps all of it in memory: a spoke that never ends an
// answer would take argocd-server down. Watches, logs and upgrades are read as they come, and are not bounded.
func (g *Gateway) bound(response *http.Response, f *forwarded) error {
	limit := g.options.MaxResponse
	if limit == 0 || f.kind != kindRequest {
		return nil
	}
	if response.ContentLength > limit {
		return g.tooLarge(f)
	}
	body := &boundedBody{ReadCloser: response.Body, left: limit, exceeded: func() error {
		why := g.tooLarge(f)
		g.logRefusal(response.Request, f.call.Caller, why)
		return why
	}}
	if strings.EqualFold(response.Header.Get("Content-Encoding"), "gzip") { // Go's clients inflate no other encoding
		body.inflated = inflate(limit)
	}
	response.Body = body
	return nil
}

func (g *Gateway) tooLarge(f *forwarded) *apihttp.Error {
	return apihttp.Errorf(http.StatusBadGateway, "agent %q: its answer is larger than %d MiB: ask for less at a time, with limit or a selector, "+
		"or raise --max-response-size", f.call.Agent, g.options.MaxResponse>>20)
}

// boundedBody is a response body that fails beyond its bound, so that nobody takes its beginning for the whole.
type boundedBody struct {
	io.ReadCloser

	left     int64
	inflated *inflation // nil if it is not compressed
	exceeded func() error
}

func (b *boundedBody) Read(buffer []byte) (int, error) {
	n, err := b.ReadCloser.Read(buffer)
	b.left -= int64(n)
	if b.left < 0 || b.inflated.exceeds(buffer[:n], err != nil) {
		return 0, b.exceeded()
	}
	return n, err
}

// Close implements io.Closer.
func (b *boundedBody) Close() error {
	b.inflated.close()
	return b.ReadCloser.Close()
}

// inflation inflates what passes, keeps none of it, and finds out whether it is too large. A nil one is of nothing.
type inflation struct {
	to   *io.PipeWriter
	over atomic.Bool
	done chan struct{} // closed when all was inflated
}

// inflate begins an inflation, for the caller to close.
func inflate(limit int64) *inflation {
	from, to := io.Pipe()
	i := &inflation{to: to, done: make(chan struct{})}
	go func() {
		defer close(i.done)
		source := bufio.NewReaderSize(from, 512) // so that little is left to inflate when a write returns
		if plain, err := gzip.NewReader(source); err == nil {
			n, _ := io.Copy(io.Discard, io.LimitReader(plain, limit+1))
			i.over.Store(n > limit)
		}
		_, _ = io.Copy(io.Discard, source) // what is malformed is for the caller to find out
	}()
	return i
}

// exceeds takes in more, the last if the end has come, and reports whether it is too large.
func (i *inflation) exceeds(more []byte, last bool) bool {
	if i == nil {
		return false
	}
	_, _ = i.to.Write(more) // which fails only after close
	if last {
		i.close()
	}
	return i.over.Load()
}

func (i *inflation) close() {
	if i != nil {
		_ = i.to.Close() // never fails
		<-i.done
	}
}
