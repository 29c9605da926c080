package apiproxy_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A policy that becomes stricter ends what is open and no longer allowed, and nothing else.
func TestStricterPolicyEndsWhatIsOpen(t *testing.T) {
	both(t, func(t *testing.T, http2 bool) {
		next, gone := make(chan string), make(chan string, 10)
		s := newSpoke(t, http2, func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Upgrade") != "" {
				echo(w, r)
				gone <- r.URL.Path
				return
			}
			w.WriteHeader(http.StatusOK)
			w.(http.Flusher).Flush()
			for {
				select {
				case line := <-next:
					fmt.Fprintln(w, line)
					w.(http.Flusher).Flush()
				case <-r.Context().Done():
					gone <- r.URL.Path
					return
				}
			}
		})
		open := func(target string) io.Reader {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+target, http.NoBody)
			require.NoError(t, err)
			answer, err := s.client.Do(r)
			require.NoError(t, err)
			t.Cleanup(func() { answer.Body.Close() })
			return answer.Body
		}
		watch, follow := open("/api/v1/namespaces/good/pods?watch=true"), open(pod+"/log?follow=true")
		other := open("/api/v1/namespaces/other/pods?watch=true")
		_, terminal, answer := s.upgrade(t, pod+"/exec?command=sh", "SPDY/3.1")
		require.Equal(t, http.StatusSwitchingProtocols, answer.code)
		_, err := terminal.Discard(len("hello "))
		require.NoError(t, err)

		s.policy.forbid("good")
		for range 3 {
			require.Contains(t, <-gone, "/namespaces/good/pods")
		}
		for _, ended := range []io.Reader{watch, follow} {
			_, err := io.ReadAll(ended)
			require.Error(t, err, "nobody takes it for the whole")
		}
		_, err = io.ReadAll(terminal)
		require.NoError(t, err)
		require.Eventually(t, func() bool { return s.log.count(`reason="forbidden: it is closed now"`) == 3 }, waitFor, tick)
		require.Equal(t, 3, s.log.count("decision=denied"))

		next <- "still here"
		line := make([]byte, len("still here"))
		_, err = io.ReadFull(other, line)
		require.NoError(t, err)
		require.Equal(t, "still here", string(line))
	})
}

// The hub may try to keep open what it may not have by not reading.
func TestWhatIsNoLongerAllowedEndsAlthoughTheHubDoesNotRead(t *testing.T) {
	full, gone := make(chan struct{}, 1), make(chan struct{}, 2)
	s := newSpoke(t, false, func(w http.ResponseWriter, r *http.Request) {
		defer func() { gone <- struct{}{} }()
		var to io.Writer = w
		if r.Header.Get("Upgrade") != "" {
			conn, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				return
			}
			defer conn.Close()
			_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n")
			to = conn
		}
		for range 64 << 10 {
			if _, err := io.WriteString(to, strings.Repeat("x", 1<<10)); err != nil {
				return
			}
			select {
			case full <- struct{}{}:
			default:
			}
		}
	})
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+pod+"/log?follow=true", http.NoBody)
	require.NoError(t, err)
	answer, err := s.client.Do(r)
	require.NoError(t, err)
	defer answer.Body.Close()
	s.upgrade(t, pod+"/attach", "SPDY/3.1")
	<-full
	s.policy.forbid("good")
	<-gone
	<-gone
	require.Eventually(t, func() bool { return s.log.count(`reason="forbidden: it is closed now"`) == 2 }, waitFor, tick)
}
