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
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/roundtrip"
)

func TestBodiless(t *testing.T) {
	for name, change := range map[string]func(*http.Request){
		"POST":      func(r *http.Request) { r.Method = http.MethodPost },
		"body":      func(r *http.Request) { r.Body = io.NopCloser(strings.NewReader("x")) },
		"upgrade":   func(r *http.Request) { r.Header.Set("Upgrade", "websocket") },
		"expecting": func(r *http.Request) { r.Header.Set("Expect", "100-continue") },
	} {
		r := get(t, "http://host/")
		require.True(t, roundtrip.Bodiless(r))
		change(r)
		require.False(t, roundtrip.Bodiless(r), name)
		_, err := roundtrip.New(roundtrip.Options{}).RoundTrip(r) //nolint:bodyclose // there is no answer
		require.ErrorContains(t, err, "bodiless")
	}
}

func TestAConnectionIsUsedAgain(t *testing.T) {
	server := play(t, always(short))
	transport := to(t, server)
	for range 5 {
		text, err := ask(t, transport)
		require.NoError(t, err)
		require.Equal(t, "hi", text)
	}
	require.EqualValues(t, 1, server.count.Load())
}

func TestAConnectionIsNotUsedAgain(t *testing.T) {
	for name, text := range map[string]string{
		"when the server says so":          "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nhi",
		"when the server said too much":    short + "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil",
		"when a body is not to have any":   "HTTP/1.1 204 No Content\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil",
		"when the answer was not finished": "HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\nhi",
	} {
		t.Run(name, func(t *testing.T) {
			left := make(chan struct{})
			server := play(t, func(number int, l *line) {
				l.hear()
				if number > 1 {
					l.say(short)
					return
				}
				l.say(text)
				l.left()
				close(left)
			})
			transport := to(t, server)
			answer, err := transport.RoundTrip(get(t, "http://host/path"))
			require.NoError(t, err)
			_, _ = io.ReadFull(answer.Body, make([]byte, 2)) // the last one has more to come
			if answer.ContentLength != 20 {
				_, _ = io.Copy(io.Discard, answer.Body)
			}
			require.NoError(t, answer.Body.Close())
			soon(t, left, "it stays open")
			again, err := ask(t, transport)
			require.NoError(t, err)
			require.Equal(t, "hi", again)
			require.EqualValues(t, 2, server.count.Load())
		})
	}
}

// A server closes connections that it has kept for long, perhaps in the moment that one is used.
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
	})
	transport := to(t, server)
	var asking sync.WaitGroup
	for range kept {
		asking.Go(func() {
			_, err := ask(t, transport)
			assertNoError(t, err)
		})
	}
	asking.Wait()
	text, err := ask(t, transport)
	require.NoError(t, err)
	require.Equal(t, "hi", text)
	require.EqualValues(t, kept+1, server.count.Load())
}

func assertNoError(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}

func TestItIsNotAskedAgain(t *testing.T) {
	for name, c := range map[string]struct {
		script func(number int, l *line)
		count  int
	}{
		"on a new connection": {func(_ int, l *line) { l.hear() }, 1},
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
			var err error
			for err == nil {
				_, err = ask(t, transport)
			}
			require.EqualValues(t, c.count, server.count.Load())
		})
	}
}

func TestCancelled(t *testing.T) {
	because := errors.New("nobody waits any more")
	for name, text := range map[string]string{
		"before the answer": "",
		"within its head":   "HTTP/1.1 200 OK\r\nContent-",
		"within its body":   "HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\nhi",
	} {
		t.Run(name, func(t *testing.T) {
			left, begun := make(chan struct{}), make(chan struct{})
			server := play(t, func(number int, l *line) {
				l.hear()
				l.say(text)
				if number == 1 {
					close(begun)
					l.left()
					close(left)
				}
			})
			transport := to(t, server)
			ctx, cancel := context.WithCancelCause(t.Context())
			var cancelling sync.WaitGroup
			cancelling.Go(func() {
				<-begun
				cancel(because)
			})
			answer, err := transport.RoundTrip(get(t, "http://host/path").WithContext(ctx))
			if err == nil {
				_, err = io.Copy(io.Discard, answer.Body)
				require.NoError(t, answer.Body.Close())
			}
			require.ErrorIs(t, err, because)
			cancelling.Wait()
			soon(t, left, "the server is not told")
			require.EqualValues(t, 1, server.count.Load(), "it is not asked again")
		})
	}
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
			_, err := ask(t, to(t, server))
			require.ErrorContains(t, err, "longer than allowed")
		})
	}
}

// A long body is no long head.
func TestTheBodyIsNotBounded(t *testing.T) {
	const size = 1 << 20
	server := play(t, always(fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", size, strings.Repeat("x", size))))
	transport := to(t, server)
	for range 2 {
		text, err := ask(t, transport)
		require.NoError(t, err)
		require.Len(t, text, size)
	}
}

func TestAnotherProtocolIsNotSpoken(t *testing.T) {
	server := play(t, always("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n"))
	_, err := ask(t, to(t, server))
	require.ErrorContains(t, err, "was not asked for")
}

func TestDialFails(t *testing.T) {
	away := errors.New("away")
	settings := options("")
	settings.Dial = func(context.Context, string) (net.Conn, error) { return nil, away }
	_, err := ask(t, roundtrip.New(settings))
	require.Equal(t, away, err)
}

// piped returns a transport whose connections have nothing but memory between them and a server that always answers.
func piped(serving *sync.WaitGroup, change func(*roundtrip.Options)) (transport *roundtrip.Transport, open func() int) {
	var mu sync.Mutex
	count := 0
	add := func(n int) {
		mu.Lock()
		defer mu.Unlock()
		count += n
	}
	settings := options("")
	settings.Dial = func(context.Context, string) (net.Conn, error) {
		ours, theirs := net.Pipe()
		add(1)
		serving.Go(func() {
			defer add(-1)
			defer theirs.Close()
			l := newLine(theirs)
			for l.hear() {
				l.say(short)
			}
		})
		return ours, nil
	}
	change(&settings)
	return roundtrip.New(settings), func() int {
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		return count
	}
}

func TestIdleConnectionsAreClosedInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var serving sync.WaitGroup
		transport, open := piped(&serving, func(*roundtrip.Options) {})
		defer serving.Wait()
		defer transport.CloseIdleConnections()
		for range 3 { // the time begins anew
			_, err := ask(t, transport)
			require.NoError(t, err)
			<-time.After(time.Minute - time.Second)
			require.Equal(t, 1, open())
		}
		<-time.After(2 * time.Second)
		require.Zero(t, open())
		_, err := ask(t, transport)
		require.NoError(t, err)
	})
}

func TestIdleConnectionsAreFew(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*roundtrip.Options)
		kept   int
	}{
		"of one host": {func(o *roundtrip.Options) { o.MaxIdlePerHost = 2 }, 2 * 3},
		"of all":      {func(o *roundtrip.Options) { o.MaxIdle = 5 }, 5},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var serving sync.WaitGroup
				transport, open := piped(&serving, c.change)
				defer serving.Wait()
				var bodies []io.ReadCloser
				for _, host := range []string{"a", "b", "c"} {
					for range 3 {
						answer, err := transport.RoundTrip(get(t, "http://"+host+"/")) //nolint:bodyclose // below
						require.NoError(t, err)
						bodies = append(bodies, answer.Body)
					}
				}
				require.Equal(t, 9, open())
				for _, body := range bodies {
					_, err := io.Copy(io.Discard, body)
					require.NoError(t, err)
					require.NoError(t, body.Close())
				}
				require.Equal(t, c.kept, open())
				transport.CloseIdleConnections()
				require.Zero(t, open())
			})
		})
	}
}

// Many at a time, some of whom lose patience: each gets its own answer, or none.
func TestNobodyGetsAnothersAnswer(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, strings.Repeat(r.URL.Path, 500))
	}))
	defer server.Close()
	transport := roundtrip.New(options(server.Listener.Addr().String()))
	defer transport.CloseIdleConnections()
	var asking sync.WaitGroup
	for who := range 16 {
		asking.Go(func() {
			for turn := range 200 {
				path := fmt.Sprintf("/%d/%d/", who, turn)
				ctx, cancel := context.WithCancel(t.Context())
				answer, err := transport.RoundTrip(get(t, "http://host"+path).WithContext(ctx))
				if turn%7 == 0 {
					cancel()
				}
				if err == nil {
					var text []byte
					text, err = io.ReadAll(answer.Body)
					_ = answer.Body.Close()
					if whole := strings.Repeat(path, 500); string(text) != whole[:len(text)] || err == nil && len(text) < len(whole) {
						t.Errorf("asked for %s, got %.40q", path, text)
					}
				}
				if err != nil && ctx.Err() == nil {
					t.Error(err)
				}
				cancel()
			}
		})
	}
	asking.Wait()
}
