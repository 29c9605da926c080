package gateway

import (
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/kubeproxy/callers"
)

const (
	// callerHeader tells the agent who asks, for its audit. It is only ever ours.
	callerHeader = "Argocd-Agent-Caller"
	// bearerProtocol begins the WebSocket subprotocol by which a browser hands a token to an API server.
	bearerProtocol  = "base64url.bearer.authorization."
	protocolsHeader = "Sec-Websocket-Protocol"
)

// checkHeaders refuses headers that could mean one thing here and another at the agent.
func checkHeaders(header http.Header) error {
	for _, value := range header["Connection"] {
		for token := range strings.SplitSeq(value, ",") {
			switch strings.ToLower(strings.TrimSpace(token)) {
			case "", "close", "keep-alive", "upgrade", "te", "http2-settings":
			default:
				// It would take away that header on its way, such as the one that says whose rights a request has.
				return callers.Refuse(http.StatusBadRequest, "header Connection names %q: only close, keep-alive, upgrade and te are for it to name",
					strings.TrimSpace(token))
			}
		}
	}
	for _, name := range []string{"Impersonate-User", "Impersonate-Uid", "Upgrade"} {
		if count := len(header[name]); count > 1 {
			return callers.Refuse(http.StatusBadRequest, "%d headers %s: send one", count, name)
		}
	}
	switch asked := header.Get("Upgrade"); strings.ToLower(asked) {
	case "", "websocket", "spdy/3.1":
		return nil
	default: // HTTP/2 is one: requests in it would be seen by nobody on the way
		return callers.Refuse(http.StatusBadRequest, "upgrade to %q: only WebSocket and SPDY/3.1 are passed on", printable(asked))
	}
}

// rewrite makes of a request what the agent is to see: the same, less what proves who the caller is to us.
func rewrite(request *httputil.ProxyRequest) {
	x := exchangeOf(request.Out.Context())
	in, out := request.In, request.Out
	// The path is the caller's, byte for byte: to take it apart and put it together again would change some.
	out.URL = &url.URL{
		Scheme: "http", Host: string(x.call.Agent), Opaque: x.call.Path,
		RawQuery: in.URL.RawQuery, ForceQuery: in.URL.ForceQuery,
	}
	out.Host = string(x.call.Agent)
	out.Trailer = in.Trailer // the server fills it in when the body has ended
	for name := range out.Header {
		if personal(name) {
			delete(out.Header, name)
		}
	}
	stripBearer(out.Header)
	out.Header.Set(callerHeader, printable(x.call.Caller))
	// With one of these, the transport would send a POST again when the connection broke. The agent is still to see them, and
	// names of headers have no case.
	for _, name := range []string{"Idempotency-Key", "X-Idempotency-Key"} {
		if values, ok := out.Header[name]; ok {
			delete(out.Header, name)
			out.Header[strings.ToLower(name)] = values
		}
	}
}

// personal says whether a header speaks of who the caller is, or claims to.
func personal(name string) bool {
	switch name {
	case "Authorization", callerHeader, "X-Real-Ip":
		return true
	default:
		return strings.HasPrefix(name, "X-Forwarded-") || strings.HasPrefix(name, "X-Remote-")
	}
}

// stripBearer takes the token out of the WebSocket subprotocols.
func stripBearer(header http.Header) {
	values := header[protocolsHeader]
	if !slices.ContainsFunc(values, func(value string) bool { return strings.Contains(value, bearerProtocol) }) {
		return
	}
	var kept []string
	for _, value := range values {
		for protocol := range strings.SplitSeq(value, ",") {
			if protocol = strings.TrimSpace(protocol); !strings.HasPrefix(protocol, bearerProtocol) {
				kept = append(kept, protocol)
			}
		}
	}
	delete(header, protocolsHeader)
	if len(kept) > 0 {
		header.Set(protocolsHeader, strings.Join(kept, ", "))
	}
}

// printable returns a name as a header can carry it. A certificate may hold any text.
func printable(name string) string {
	const longest = 256
	clean := strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, name)
	return clean[:min(len(clean), longest)]
}

// kind is how long a request may rightly take.
type kind string

const (
	short   kind = "request" // an answer is due
	stream  kind = "stream"  // watches and logs, whose answer may begin late and does not end
	upgrade kind = "upgrade" // exec, attach, port-forward
)

// kindOf tells by the same signs as an API server.
func kindOf(r *http.Request, path string) kind {
	switch {
	case r.Header.Get("Upgrade") != "":
		return upgrade
	case asks(r.URL.RawQuery, "watch"), asks(r.URL.RawQuery, "follow"):
		return stream
	}
	segments := strings.Split(path, "/")
	switch segments[len(segments)-1] {
	case "attach", "exec", "log", "portforward":
		return stream
	}
	if slices.Contains(segments, "proxy") || slices.Contains(segments, "watch") {
		return stream
	}
	return short
}

// asks says whether a query turns a switch on, in the way of an API server.
func asks(query, name string) bool {
	if !strings.Contains(query, name) {
		return false
	}
	values, _ := url.ParseQuery(query) // it returns what it could read
	if !values.Has(name) {
		return false
	}
	value := values.Get(name)
	return value != "0" && !strings.EqualFold(value, "false")
}

// verbOf names what a request does, for metrics: there are few.
func verbOf(r *http.Request, is kind) string {
	switch {
	case is == upgrade:
		return "UPGRADE"
	case is == stream && r.Method == http.MethodGet:
		return "WATCH"
	}
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions:
		return r.Method
	default:
		return "OTHER"
	}
}
