package gateway

import (
	"bufio"
	"compress/gzip"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/jsonsize"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/apihttp"
)

// bound bounds the answer of an agent: the bytes of it, as it is sent and inflated, and the memory that they take once they are decoded.
// Its caller keeps all of it in memory: a spoke that never ends an answer, or lists millions of nothings, would take argocd-server
// down. Watches, logs and upgrades are read as they come, and are not bounded.
func (g *Gateway) bound(response *http.Response, f *forwarded) error {
	if f.kind != kindRequest {
		return nil
	}
	typed, err := g.counts(response, f)
	if err != nil {
		return err
	}
	m := &measure{size: g.options.MaxResponse, memory: g.options.MaxMemory}
	if !typed {
		m.memory = 0
	}
	if m.size == 0 && m.memory == 0 {
		return nil
	}
	if m.size != 0 && response.ContentLength > m.size {
		return g.tooLarge(f, errSize)
	}
	body := &boundedBody{ReadCloser: response.Body, sent: &measure{size: m.size}, exceeded: func(err error) error {
		why := g.tooLarge(f, err)
		g.logRefusal(response.Request, f.call.Caller, why)
		return why
	}}
	if strings.EqualFold(response.Header.Get("Content-Encoding"), "gzip") { // Go's clients inflate no other encoding
		body.inflated = inflate(m)
	} else {
		body.sent = m
	}
	response.Body = body
	return nil
}

// counts reports whether an answer is counted as JSON. All is, whatever type it says it has, but what is decoded otherwise and the caller
// asked for by name: clients of Kubernetes go by the type that an answer says it has, also if they have not asked for it.
func (g *Gateway) counts(response *http.Response, f *forwarded) (bool, error) {
	found := strings.ToLower(response.Header.Get("Content-Type"))
	for _, other := range []string{"protobuf", "yaml", "cbor"} {
		switch {
		case !strings.Contains(found, other):
		case strings.Contains(strings.ToLower(strings.Join(response.Request.Header["Accept"], ",")), other):
			return false, nil
		default:
			return false, apihttp.Errorf(http.StatusBadGateway, "agent %q: its answer has the type %.100q, which was not asked for: "+
				"see what its API server is, or name the type in Accept", f.call.Agent, apihttp.Printable(found))
		}
	}
	return true, nil
}

func (g *Gateway) tooLarge(f *forwarded, err error) *apihttp.Error {
	if errors.Is(err, errMemory) {
		return apihttp.Errorf(http.StatusBadGateway, "agent %q: its answer takes more than %d MiB of memory when it is decoded: ask for less "+
			"at a time, with limit or a selector, or raise --max-response-memory", f.call.Agent, g.options.MaxMemory>>20)
	}
	return apihttp.Errorf(http.StatusBadGateway, "agent %q: its answer is larger than %d MiB: ask for less at a time, with limit or a selector, "+
		"or raise --max-response-size", f.call.Agent, g.options.MaxResponse>>20)
}

var (
	errSize   = errors.New("more bytes than may be")
	errMemory = errors.New("more memory than may be")
)

// measure measures what is written to it. Its bounds are 0 for none.
type measure struct {
	size, memory int64
	counted      jsonsize.Counter
}

// Write fails beyond the bounds.
func (m *measure) Write(piece []byte) (int, error) {
	n, _ := m.counted.Write(piece) // never fails
	switch {
	case m.size != 0 && m.counted.Bytes() > m.size:
		return n, errSize
	case m.memory != 0 && m.counted.Memory(jsonsize.ElementOfKubernetes) > m.memory:
		return n, errMemory
	}
	return n, nil
}

// boundedBody is a response body that fails beyond its bound, so that nobody takes its beginning for the whole.
type boundedBody struct {
	io.ReadCloser

	sent     *measure
	inflated *inflation // nil if it is not compressed
	exceeded func(error) error
}

func (b *boundedBody) Read(buffer []byte) (int, error) {
	n, err := b.ReadCloser.Read(buffer)
	_, over := b.sent.Write(buffer[:n])
	if over == nil {
		over = b.inflated.add(buffer[:n], err != nil)
	}
	if over != nil {
		return 0, b.exceeded(over)
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
	over atomic.Pointer[error] // why it is too large
	done chan struct{}         // closed when all was inflated
}

// inflate begins an inflation, for the caller to close.
func inflate(into *measure) *inflation {
	from, to := io.Pipe()
	i := &inflation{to: to, done: make(chan struct{})}
	go func() {
		defer close(i.done)
		source := bufio.NewReaderSize(from, 512) // so that little is left to inflate when a write returns
		if plain, err := gzip.NewReader(source); err == nil {
			if _, err := io.Copy(into, plain); errors.Is(err, errSize) || errors.Is(err, errMemory) { //nolint:gosec // it is bounded by what it is copied to
				i.over.Store(&err)
			}
		}
		_, _ = io.Copy(io.Discard, source) // what is malformed is for the caller to find out
	}()
	return i
}

// add takes in more, the last if the end has come, and returns why it is too large.
func (i *inflation) add(more []byte, last bool) error {
	if i == nil {
		return nil
	}
	_, _ = i.to.Write(more) // which fails only after close
	if last {
		i.close()
	}
	if over := i.over.Load(); over != nil {
		return *over
	}
	return nil
}

func (i *inflation) close() {
	if i != nil {
		_ = i.to.Close() // never fails
		<-i.done
	}
}
