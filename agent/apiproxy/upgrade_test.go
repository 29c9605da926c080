package apiproxy_test

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
)

// upgrade opens a connection to the handler and asks for an upgrade.
func (s *spoke) upgrade(t *testing.T, target, protocol string) (*net.TCPConn, *bufio.Reader, head) {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	_, err = io.WriteString(conn, "POST "+target+" HTTP/1.1\r\nHost: spoke\r\nConnection: Upgrade\r\nUpgrade: "+protocol+"\r\n"+
		"X-Stream-Protocol-Version: v5.channel.k8s.io\r\nX-Stream-Protocol-Version: v4.channel.k8s.io\r\nContent-Length: 0\r\n\r\n")
	require.NoError(t, err)
	reader := bufio.NewReader(conn)
	answer, err := http.ReadResponse(reader, nil)
	require.NoError(t, err)
	if answer.StatusCode != http.StatusSwitchingProtocols {
		text, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		reader.Reset(bytes.NewReader(text))
	}
	require.NoError(t, answer.Body.Close())
	return conn.(*net.TCPConn), reader, head{answer.StatusCode, answer.Header}
}

// echo upgrades a connection, repeats what comes, and says goodbye when nothing more does.
func echo(w http.ResponseWriter, r *http.Request) {
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	defer conn.Close()
	_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "+r.Header.Get("Upgrade")+
		"\r\nX-Stream-Protocol-Version: "+r.Header["X-Stream-Protocol-Version"][1]+"\r\nX-Auth: "+r.Header.Get("Authorization")+"\r\n\r\nhello ")
	_, _ = io.Copy(conn, buffered)
	_, _ = io.WriteString(conn, " goodbye")
}

// An upgrade works in both directions, also after one of them has ended, and though the API server speaks HTTP/2.
func TestUpgradeIsForwardedWithHalfCloses(t *testing.T) {
	both(t, func(t *testing.T, http2 bool) {
		s := newSpoke(t, http2, echo)
		for _, protocol := range []string{"SPDY/3.1", "websocket"} {
			conn, reader, answer := s.upgrade(t, pod+"/exec?command=sh", protocol)
			require.Equal(t, http.StatusSwitchingProtocols, answer.code)
			require.Equal(t, protocol, answer.header.Get("Upgrade"))
			require.Equal(t, "v4.channel.k8s.io", answer.header.Get("X-Stream-Protocol-Version"))
			require.Equal(t, "Bearer agents-own", answer.header.Get("X-Auth"))
			_, err := io.WriteString(conn, "ping")
			require.NoError(t, err)
			first := make([]byte, len("hello ping"))
			_, err = io.ReadFull(reader, first)
			require.NoError(t, err)
			require.Equal(t, "hello ping", string(first))
			require.NoError(t, conn.CloseWrite())
			rest, err := io.ReadAll(reader)
			require.NoError(t, err)
			require.Equal(t, " goodbye", string(rest))
			require.Eventually(t, func() bool { return strings.Contains(s.log.last(), "decision=allowed code=101") }, waitFor, tick)
			require.Contains(t, s.log.last(), "level=INFO")
		}
	})
}

func TestRefusedUpgradeIsForwarded(t *testing.T) {
	s := newSpoke(t, true, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, `{"kind":"Status","message":"no such pod"}`)
	})
	_, body, answer := s.upgrade(t, pod+"/exec?command=sh", "SPDY/3.1")
	require.Equal(t, http.StatusNotFound, answer.code)
	text, err := io.ReadAll(body)
	require.NoError(t, err)
	require.Contains(t, string(text), "no such pod")
	_, _, answer = s.upgrade(t, "/api/v1/namespaces/bad/pods/p/exec?command=sh", "SPDY/3.1")
	require.Equal(t, http.StatusForbidden, answer.code)
}

func TestUpgradeWithABodyIsRefused(t *testing.T) {
	s := newSpoke(t, true, echo)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url+pod+"/exec?command=sh", strings.NewReader("early"))
	require.NoError(t, err)
	r.Header = http.Header{"Connection": {"Upgrade"}, "Upgrade": {"SPDY/3.1"}}
	answer, err := http.DefaultTransport.RoundTrip(r)
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	require.Equal(t, http.StatusBadRequest, answer.StatusCode)
}

func TestUpgradedConnectionEndsWithItsCaller(t *testing.T) {
	ended := make(chan struct{})
	s := newSpoke(t, true, func(w http.ResponseWriter, r *http.Request) {
		echo(w, r)
		close(ended)
	})
	conn, _, answer := s.upgrade(t, pod+"/attach", "SPDY/3.1")
	require.Equal(t, http.StatusSwitchingProtocols, answer.code)
	require.NoError(t, conn.SetLinger(0))
	require.NoError(t, conn.Close())
	<-ended
}

// An exec may be a GET. http.Transport repeats one that breaks on a connection that was used before: of a refused upgrade, say.
func TestUpgradeIsNotRetried(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	refuse := make(chan struct{})
	var execs atomic.Int32
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				defer conn.Close()
				reader := bufio.NewReader(conn)
				for {
					r, err := http.ReadRequest(reader)
					if err != nil || strings.HasSuffix(r.URL.Path, "/exec") {
						if err == nil {
							execs.Add(1)
						}
						return
					}
					<-refuse
					_, _ = io.WriteString(conn, "HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")
				}
			})
		}
	})
	defer serving.Wait()
	defer listener.Close()
	dials, release := make(chan struct{}, 10), make(chan struct{}, 1)
	release <- struct{}{} // the first
	s := before(t, &rest.Config{Host: "http://" + listener.Addr().String(), Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		dials <- struct{}{}
		<-release
		return new(net.Dialer).DialContext(ctx, network, address)
	}})
	ask := func(target string) chan int {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+target, http.NoBody)
		require.NoError(t, err)
		r.Header = http.Header{"Connection": {"Upgrade"}, "Upgrade": {"websocket"}}
		answered := make(chan int, 1)
		go func() {
			code := 0
			if answer, err := s.client.Do(r); err == nil {
				code = answer.StatusCode
				_ = answer.Body.Close()
			}
			answered <- code
		}()
		return answered
	}
	refused := ask(pod + "/attach")
	<-dials
	exec := ask(pod + "/exec?command=reboot")
	<-dials // for the exec, which takes any connection that is free before
	close(refuse)
	require.Equal(t, http.StatusForbidden, <-refused)
	close(release)
	require.Equal(t, http.StatusBadGateway, <-exec)
	require.EqualValues(t, 1, execs.Load())
}
