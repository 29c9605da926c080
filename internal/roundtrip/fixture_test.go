package roundtrip_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/roundtrip"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long a test waits for what must happen.
const patience = 20 * time.Second

// script is a server that deals with each connection as a test says.
type script struct {
	address string
	count   atomic.Int32 // of the connections that there were
}

// play starts a server that hands each connection to a function, which gets its number too, from 1, and closes it afterwards.
func play(tb testing.TB, each func(number int, c *line)) *script {
	tb.Helper()
	listener, err := (&net.ListenConfig{}).Listen(tb.Context(), "tcp", "127.0.0.1:0")
	require.NoError(tb, err)
	s := &script{address: listener.Addr().String()}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			accepted, err := listener.Accept()
			if err != nil {
				return
			}
			number := int(s.count.Add(1))
			serving.Go(func() {
				defer accepted.Close()
				each(number, newLine(accepted))
			})
		}
	})
	tb.Cleanup(func() {
		_ = listener.Close()
		serving.Wait()
	})
	return s
}

// line is the server's end of a connection.
type line struct {
	net.Conn
	in *bufio.Reader
}

func newLine(conn net.Conn) *line { return &line{Conn: conn, in: bufio.NewReader(conn)} }

// hear waits for a request, and reports whether one came.
func (l *line) hear() bool {
	_, err := http.ReadRequest(l.in)
	return err == nil
}

// say answers, or says part of an answer.
func (l *line) say(text string) { _, _ = io.WriteString(l.Conn, text) }

// left waits until the client has closed the connection.
func (l *line) left() { _, _ = io.Copy(io.Discard, l.in) }

// always answers each request with the same words.
func always(text string) func(int, *line) {
	return func(_ int, l *line) {
		for l.hear() {
			l.say(text)
		}
	}
}

// only deals with the first connection as it says. All others always answer.
func only(first func(l *line)) func(int, *line) {
	return func(number int, l *line) {
		if number == 1 {
			first(l)
			return
		}
		always(short)(number, l)
	}
}

const short = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"

func options(address string) roundtrip.Options {
	return roundtrip.Options{
		Dial: func(ctx context.Context, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", address)
		},
		MaxHeader: 64 << 10, MaxIdle: 8, MaxIdlePerHost: 4, IdleTimeout: time.Minute,
	}
}

// to returns a transport whose connections all go to a server.
func to(tb testing.TB, s *script) *roundtrip.Transport {
	tb.Helper()
	t := roundtrip.New(options(s.address))
	tb.Cleanup(t.CloseIdleConnections) // which comes before the server waits for them
	return t
}

// netHTTP returns net/http's own transport, whose connections go there too.
func netHTTP(tb testing.TB, s *script) *http.Transport {
	tb.Helper()
	t := &http.Transport{DisableCompression: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return options(s.address).Dial(ctx, "")
	}}
	tb.Cleanup(t.CloseIdleConnections)
	return t
}

// get is a request, which any goroutine may make.
func get(ctx context.Context, target string) *http.Request {
	address, _ := url.Parse(target) // which tests spell right
	return (&http.Request{Method: http.MethodGet, URL: address, Header: http.Header{}, Body: http.NoBody}).WithContext(ctx)
}

// ask makes a round trip and reads the answer to its end.
func ask(ctx context.Context, t http.RoundTripper) (string, error) {
	answer, err := t.RoundTrip(get(ctx, "http://host/path"))
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	return string(text), err
}

// askAnew asks, and requires that the server is asked on a second connection.
func askAnew(tb testing.TB, t http.RoundTripper, s *script) {
	tb.Helper()
	text, err := ask(tb.Context(), t)
	require.NoError(tb, err)
	require.Equal(tb, "hi", text)
	require.EqualValues(tb, 2, s.count.Load())
}

// soon waits for what must happen.
func soon(tb testing.TB, what <-chan struct{}, why string) {
	tb.Helper()
	select {
	case <-what:
	case <-time.After(patience):
		require.FailNow(tb, why)
	}
}
