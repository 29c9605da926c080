package roundtrip_test

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// heard is what callers look at of an answer.
type heard struct {
	status, proto    string
	header, trailer  http.Header
	length           int64
	encoding         []string
	last             bool
	ahead            []int // what was said ahead of it
	body             string
	failed, brokeOff bool
}

func hearing(t *testing.T, transport http.RoundTripper, method string) heard {
	t.Helper()
	var h heard
	r := get(t.Context(), "http://host/path")
	r.Method = method
	r = r.WithContext(httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{
		Got1xxResponse: func(code int, _ textproto.MIMEHeader) error { h.ahead = append(h.ahead, code); return nil },
	}))
	answer, err := transport.RoundTrip(r)
	if err != nil {
		h.failed = true
		return h
	}
	defer answer.Body.Close()
	require.Same(t, r, answer.Request)
	text, err := io.ReadAll(answer.Body)
	h.status, h.proto, h.header, h.trailer = answer.Status, answer.Proto, answer.Header, answer.Trailer
	h.length, h.encoding, h.last = answer.ContentLength, answer.TransferEncoding, answer.Close
	h.body, h.brokeOff = string(text), err != nil
	return h
}

// heads returns an answer without its body.
func heads(text string) string {
	said := ""
	for ahead := true; ahead; ahead = strings.HasPrefix(text, "HTTP/1.1 ") {
		head, rest, whole := strings.Cut(text, "\r\n\r\n")
		if said += head; whole {
			said += "\r\n\r\n"
		}
		text = rest
	}
	return said
}

// What net/http's transport makes of an answer, this one does too.
func TestAnswersAreThoseOfNetHTTP(t *testing.T) {
	for name, text := range map[string]string{
		"with a length":           "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nA: 1\r\nA: 2\r\n\r\nhi",
		"in chunks":               "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n3;x=y\r\n yo\r\n0\r\n\r\n",
		"with a trailer":          "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: T\r\n\r\n2\r\nhi\r\n0\r\nT: v\r\n\r\n",
		"until the end":           "HTTP/1.1 200 OK\r\n\r\nuntil the end",
		"of no length":            "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
		"no content":              "HTTP/1.1 204 No Content\r\n\r\n",
		"not modified":            "HTTP/1.1 304 Not Modified\r\nEtag: x\r\n\r\n",
		"the last one":            "HTTP/1.1 500 Oh\r\nConnection: close\r\nContent-Length: 2\r\n\r\nno",
		"by HTTP/1.0":             "HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nhi",
		"compressed":              "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\nzz",
		"with something ahead":    "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi",
		"shorter than it says":    "HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\nhi",
		"shorter by a chunk":      "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n",
		"with a bad chunk":        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
		"with two lengths":        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nhi!",
		"length and chunks":       "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
		"of another encoding":     "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nhi",
		"with a header cut off":   "HTTP/1.1 200 OK\r\nContent-Le",
		"with a malformed header": "HTTP/1.1 200 OK\r\nContent Length: 2\r\n\r\nhi",
		"of a strange status":     "HTTP/1.1 099 What\r\nContent-Length: 2\r\n\r\nhi",
		"no HTTP":                 "SSH-2.0-OpenSSH_9.6\r\n\r\n",
		"no answer":               "",
	} {
		t.Run(name, func(t *testing.T) {
			for _, method := range []string{http.MethodGet, http.MethodHead} {
				said := text
				if method == http.MethodHead {
					said = heads(text)
				}
				server := play(t, func(_ int, l *line) {
					if l.hear() {
						l.say(said)
					}
				})
				require.Equal(t, hearing(t, netHTTP(t, server), method), hearing(t, to(t, server), method), method)
			}
		})
	}
}

// What net/http's transport makes of a request, this one does too, byte by byte.
func TestRequestsAreThoseOfNetHTTP(t *testing.T) {
	for name, change := range map[string]func(*http.Request){
		"plain":             func(*http.Request) {},
		"HEAD":              func(r *http.Request) { r.Method = http.MethodHead },
		"no body at all":    func(r *http.Request) { r.Body = nil },
		"with a query":      func(r *http.Request) { r.URL.RawQuery = "a=b&c=%20" },
		"an empty query":    func(r *http.Request) { r.URL.ForceQuery = true },
		"opaque":            func(r *http.Request) { r.URL = &url.URL{Scheme: "http", Host: "host", Opaque: "/a%2Fb//c"} },
		"another host":      func(r *http.Request) { r.Host = "other:80" },
		"without an agent":  func(r *http.Request) { r.Header.Set("User-Agent", "") },
		"the last":          func(r *http.Request) { r.Close = true },
		"in small letters":  func(r *http.Request) { r.Header["idempotency-key"] = []string{"x"} },
		"values":            func(r *http.Request) { r.Header["B"] = []string{"2", "1"}; r.Header.Set("A", " x\t") },
		"a large header":    func(r *http.Request) { r.Header.Set("Large", strings.Repeat("x", 20_000)) },
		"a control in path": func(r *http.Request) { r.URL = &url.URL{Scheme: "http", Host: "host", Opaque: "/a\n"} },
	} {
		t.Run(name, func(t *testing.T) {
			said := make(chan string, 2)
			server := play(t, func(_ int, l *line) {
				var raw bytes.Buffer
				_, _ = http.ReadRequest(bufio.NewReader(io.TeeReader(l.Conn, &raw)))
				said <- raw.String()
				l.say(short)
			})
			var all []string
			for _, transport := range []http.RoundTripper{netHTTP(t, server), to(t, server)} {
				r := get(t.Context(), "http://host/path")
				change(r)
				answer, err := transport.RoundTrip(r)
				if err != nil {
					all = append(all, "refused")
					continue
				}
				require.NoError(t, answer.Body.Close())
				all = append(all, <-said)
			}
			require.Equal(t, all[0], all[1])
		})
	}
}
