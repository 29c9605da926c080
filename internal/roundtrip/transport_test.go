package roundtrip_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/roundtrip"
)

func TestSupports(t *testing.T) {
	require.True(t, roundtrip.Supports(get(t.Context(), "http://host/")))
	for name, change := range map[string]func(*http.Request){
		"POST":      func(r *http.Request) { r.Method = http.MethodPost },
		"DELETE":    func(r *http.Request) { r.Method = http.MethodDelete },
		"body":      func(r *http.Request) { r.Body = io.NopCloser(strings.NewReader("x")) },
		"upgrade":   func(r *http.Request) { r.Header.Set("Upgrade", "websocket") },
		"expecting": func(r *http.Request) { r.Header.Set("Expect", "100-continue") },
	} {
		t.Run(name, func(t *testing.T) {
			r := get(t.Context(), "http://host/")
			change(r)
			require.False(t, roundtrip.Supports(r))
			_, err := roundtrip.New(roundtrip.Options{}).RoundTrip(r) //nolint:bodyclose // there is no answer
			require.ErrorContains(t, err, "no GET or HEAD")
		})
	}
}

// Cancelling what is over, as everybody does, closes nothing.
func TestAConnectionIsUsedAgain(t *testing.T) {
	server := play(t, always(short))
	transport := to(t, server)
	for range 5 {
		ctx, cancel := context.WithCancel(t.Context())
		text, err := ask(ctx, transport)
		cancel()
		require.NoError(t, err)
		require.Equal(t, "hi", text)
	}
	require.EqualValues(t, 1, server.count.Load())
}

func TestAConnectionIsNotUsedAgain(t *testing.T) {
	for name, c := range map[string]struct {
		answer string
		change func(*http.Request)
	}{
		"when the server says so":        {answer: "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nhi"},
		"when the request says so":       {answer: short, change: func(r *http.Request) { r.Close = true }},
		"when the answer is given up":    {answer: "HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\nhi"},
		"when the answer has no end yet": {answer: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n"},
	} {
		t.Run(name, func(t *testing.T) {
			left := make(chan struct{})
			server := play(t, only(func(l *line) {
				l.hear()
				l.say(c.answer)
				l.left()
				close(left)
			}))
			transport := to(t, server)
			r := get(t.Context(), "http://host/path")
			if c.change != nil {
				c.change(r)
			}
			answer, err := transport.RoundTrip(r)
			require.NoError(t, err)
			begin := make([]byte, 2)
			_, err = io.ReadFull(answer.Body, begin)
			require.NoError(t, err)
			require.NoError(t, answer.Body.Close())
			_, err = answer.Body.Read(begin)
			require.ErrorIs(t, err, http.ErrBodyReadAfterClose)
			soon(t, left, "it stays open")
			askAnew(t, transport, server)
		})
	}
}

// A server closes connections that it has kept for long, perhaps in the moment that one is used: nobody looks here before.
func TestItIsAskedAgainWhenAKeptConnectionWasClosed(t *testing.T) {
	const kept = 3
	var all sync.WaitGroup
	all.Add(kept)
	server := play(t, func(number int, l *line) {
		l.hear()
		if number <= kept { // which are open at the same time
			all.Done()
			all.Wait()
		}
		l.say(short)
		if number <= kept {
			l.hear()
		}
	})
	transport := to(t, server)
	var asking sync.WaitGroup
	for range kept {
		asking.Go(func() {
			_, err := ask(t.Context(), transport)
			assert.NoError(t, err)
		})
	}
	asking.Wait()
	text, err := ask(t.Context(), transport)
	require.NoError(t, err)
	require.Equal(t, "hi", text)
	require.EqualValues(t, kept+1, server.count.Load())
}

func TestItIsNotAskedAgain(t *testing.T) {
	for name, c := range map[string]struct {
		script func(number int, l *line)
		before int // how often it is asked with success
	}{
		"on a new connection": {func(_ int, l *line) { l.hear() }, 0},
		"when an answer had begun": {func(_ int, l *line) {
			l.hear()
			l.say(short)
			l.hear()
			l.say("HTTP/1.1 2")
		}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			server := play(t, c.script)
			transport := to(t, server)
			for range c.before {
				_, err := ask(t.Context(), transport)
				require.NoError(t, err)
			}
			_, err := ask(t.Context(), transport)
			require.ErrorContains(t, err, "read the answer")
			require.EqualValues(t, 1, server.count.Load())
		})
	}
}

var errBecause = errors.New("nobody waits any more")

func TestCancelled(t *testing.T) {
	for name, text := range map[string]string{
		"before the answer": "",
		"within its head":   "HTTP/1.1 200 OK\r\nContent-",
		"within its body":   "HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\nhi",
	} {
		t.Run(name, func(t *testing.T) {
			left, begun := make(chan struct{}), make(chan struct{})
			server := play(t, func(_ int, l *line) {
				l.hear()
				l.say(short) // so that it would be asked again if the connection broke
				l.hear()
				l.say(text)
				close(begun)
				l.left()
				close(left)
			})
			transport := to(t, server)
			_, err := ask(t.Context(), transport)
			require.NoError(t, err)
			ctx, cancel := context.WithCancelCause(t.Context())
			var cancelling sync.WaitGroup
			cancelling.Go(func() {
				<-begun
				cancel(errBecause)
			})
			_, err = ask(ctx, transport)
			require.Equal(t, errBecause, err)
			cancelling.Wait()
			soon(t, left, "the server is not told")
			require.EqualValues(t, 1, server.count.Load())
		})
	}
}

func TestCancelledBefore(t *testing.T) {
	server := play(t, always(short))
	transport := to(t, server)
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errBecause)
	_, err := ask(ctx, transport)
	require.Equal(t, errBecause, err)
	require.Zero(t, server.count.Load())
}

func TestTheHeadIsBounded(t *testing.T) {
	for name, said := range map[string]string{
		"of one answer":         "A: " + strings.Repeat("x", 1<<10) + "\r\n",
		"of what is said ahead": "\r\nHTTP/1.1 103 Early Hints\r\nA: b\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			server := play(t, func(_ int, l *line) {
				l.hear()
				l.say("HTTP/1.1 103 Early Hints\r\n")
				for {
					if _, err := io.WriteString(l.Conn, said); err != nil {
						return
					}
				}
			})
			_, err := ask(t.Context(), to(t, server))
			require.ErrorContains(t, err, "longer than 65536 bytes")
		})
	}
}

// A long body is no long head.
func TestTheBodyIsNotBounded(t *testing.T) {
	const size = 1 << 20
	server := play(t, always(fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", size, strings.Repeat("x", size))))
	transport := to(t, server)
	for range 2 {
		text, err := ask(t.Context(), transport)
		require.NoError(t, err)
		require.Len(t, text, size)
	}
}

func TestAnotherProtocolIsNotSpoken(t *testing.T) {
	server := play(t, always("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n"))
	_, err := ask(t.Context(), to(t, server))
	require.ErrorContains(t, err, "was not asked for")
}

func TestDialFails(t *testing.T) {
	away := errors.New("away")
	settings := options("")
	settings.Dial = func(context.Context, string) (net.Conn, error) { return nil, away }
	_, err := ask(t.Context(), roundtrip.New(settings))
	require.Equal(t, away, err)
}

// Many at a time, some of whom lose patience at one moment or another: each gets its own answer, or none.
func TestNobodyGetsAnothersAnswer(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, strings.Repeat(r.URL.Path, 500))
	}))
	defer server.Close()
	transport := roundtrip.New(options(server.Listener.Addr().String()))
	defer transport.CloseIdleConnections()
	one := func(path string, impatient bool) error {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		if impatient {
			go cancel()
		}
		answer, err := transport.RoundTrip(get(ctx, "http://host"+path))
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		whole := strings.Repeat(path, 500)
		if !strings.HasPrefix(whole, string(text)) || err == nil && len(text) < len(whole) {
			t.Errorf("asked for %s, got %.40q", path, text)
		}
		return err
	}
	var asking sync.WaitGroup
	for who := range 16 {
		asking.Go(func() {
			for turn := range 200 {
				impatient := turn%3 == 0
				if err := one(fmt.Sprintf("/%d/%d/", who, turn), impatient); err != nil && !impatient {
					t.Error(err)
				}
			}
		})
	}
	asking.Wait()
}
