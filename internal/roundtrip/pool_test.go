package roundtrip_test

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/roundtrip"
)

// memory is a transport whose connections have nothing but memory between them and a server that always answers.
type memory struct {
	*roundtrip.Transport

	serving sync.WaitGroup
	count   atomic.Int32 // of the connections that are open
}

func newMemory(change func(*roundtrip.Options)) *memory {
	m := &memory{}
	settings := options("")
	settings.Dial = func(context.Context, string) (net.Conn, error) {
		ours, theirs := net.Pipe()
		m.count.Add(1)
		m.serving.Go(func() {
			defer m.count.Add(-1)
			defer theirs.Close()
			always(short)(0, newLine(theirs))
		})
		return ours, nil
	}
	change(&settings)
	m.Transport = roundtrip.New(settings)
	return m
}

// open returns how many connections are open once everybody has done what there is to do. It is for bubbles of synctest.
func (m *memory) open() int {
	synctest.Wait()
	return int(m.count.Load())
}

func (m *memory) close() {
	m.CloseIdleConnections()
	m.serving.Wait()
}

func TestKeptConnectionsAreClosedInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory(func(*roundtrip.Options) {})
		defer m.close()
		for range 3 { // the time begins anew
			_, err := ask(t.Context(), m)
			require.NoError(t, err)
			<-time.After(time.Minute - time.Second)
			require.Equal(t, 1, m.open())
		}
		<-time.After(2 * time.Second)
		require.Zero(t, m.open())
		_, err := ask(t.Context(), m)
		require.NoError(t, err)
	})
}

// begin asks a host for something, and returns what is to end it.
func begin(t *testing.T, transport http.RoundTripper, host string) (end func()) {
	t.Helper()
	answer, err := transport.RoundTrip(get(t.Context(), "http://"+host+"/")) //nolint:bodyclose // in end
	require.NoError(t, err)
	return func() {
		_, err := io.Copy(io.Discard, answer.Body)
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
	}
}

func TestKeptConnectionsAreFew(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*roundtrip.Options)
		kept   int
	}{
		"of one host": {func(o *roundtrip.Options) { o.MaxIdlePerHost = 2 }, 2 * 3},
		"of all":      {func(o *roundtrip.Options) { o.MaxIdle = 5 }, 5},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMemory(c.change)
				defer m.close()
				var ends []func()
				for _, host := range []string{"a", "b", "c"} {
					for range 3 {
						ends = append(ends, begin(t, m, host))
					}
				}
				require.Equal(t, 9, m.open())
				for _, end := range ends {
					end()
				}
				require.Equal(t, c.kept, m.open())
				m.CloseIdleConnections()
				require.Zero(t, m.open())
			})
		})
	}
}

// A host that is asked all the time keeps its connection, however many others there were.
func TestTheOldestConnectionGoesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var dialled []string
		m := newMemory(func(o *roundtrip.Options) {
			o.MaxIdle = 2
			dial := o.Dial
			o.Dial = func(ctx context.Context, host string) (net.Conn, error) {
				dialled = append(dialled, host)
				return dial(ctx, host)
			}
		})
		defer m.close()
		for _, host := range []string{"busy", "one", "busy", "two", "busy", "one", "busy"} {
			<-time.After(time.Second)
			begin(t, m, host)()
		}
		require.Equal(t, []string{"busy", "one", "two", "one"}, dialled)
		require.Equal(t, 2, m.open())
	})
}

// What comes back after everything was closed is closed too, until something is asked again.
func TestClosedForNow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory(func(*roundtrip.Options) {})
		defer m.close()
		end := begin(t, m, "a")
		m.CloseIdleConnections()
		end()
		require.Zero(t, m.open())
		begin(t, m, "a")()
		require.Equal(t, 1, m.open())
	})
}

// asides returns what servers say that nobody asked for.
func asides() map[string]string {
	return map[string]string{
		"another answer": "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil",
		"a good-bye":     "HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",
		"an end":         "",
	}
}

// What a server says unasked is nobody's answer, whenever it comes.
func TestAnAsideIsNoAnswer(t *testing.T) {
	long := "HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n" + strings.Repeat("x", 100_000)
	for name, aside := range asides() {
		for when, script := range map[string]func(l *line, idle <-chan struct{}){
			"at once":              func(l *line, _ <-chan struct{}) { l.say(short + aside) },
			"after a long answer":  func(l *line, _ <-chan struct{}) { l.say(long + aside) },
			"after one without":    func(l *line, _ <-chan struct{}) { l.say("HTTP/1.1 204 No Content\r\n\r\n" + aside) },
			"when nothing is said": func(l *line, idle <-chan struct{}) { l.say(short); <-idle; l.say(aside) },
		} {
			t.Run(name+" "+when, func(t *testing.T) {
				idle, said := make(chan struct{}), make(chan struct{})
				server := play(t, only(func(l *line) {
					l.hear()
					script(l, idle)
					if aside == "" {
						_ = l.Conn.(*net.TCPConn).CloseWrite()
					}
					close(said)
					l.left()
				}))
				transport := to(t, server)
				_, err := ask(t.Context(), transport)
				require.NoError(t, err)
				close(idle)
				soon(t, said, "it says nothing")
				askAnew(t, transport, server)
			})
		}
	}
}

// The same by TLS, whose connections take in more than is read.
func TestAnAsideByTLSIsNoAnswer(t *testing.T) {
	for name, aside := range asides() {
		t.Run(name, func(t *testing.T) {
			secure := httptest.NewTLSServer(nil) // for its certificate
			defer secure.Close()
			said := make(chan struct{})
			server := play(t, func(number int, l *line) {
				secured := tls.Server(l.Conn, secure.TLS)
				defer secured.Close() // which says so
				only(func(l *line) {
					l.hear()
					l.say(short)
					l.say(aside) // in a record of its own
					if aside == "" {
						_ = secured.CloseWrite()
					}
					close(said)
					l.left()
				})(number, newLine(secured))
			})
			settings := options(server.address)
			dial := settings.Dial
			settings.Dial = func(ctx context.Context, host string) (net.Conn, error) {
				conn, err := dial(ctx, host)
				return tls.Client(conn, &tls.Config{InsecureSkipVerify: true}), err
			}
			transport := roundtrip.New(settings)
			defer transport.CloseIdleConnections()
			_, err := ask(t.Context(), transport)
			require.NoError(t, err)
			soon(t, said, "it says nothing")
			for range 2 { // and that one stays
				askAnew(t, transport, server)
			}
		})
	}
}
