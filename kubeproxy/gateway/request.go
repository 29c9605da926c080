package gateway

import (
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/apihttp"
)

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
	apihttp.DropCredentials(out.Header)
	out.Header.Set(apihttp.CallerHeader, apihttp.Printable(x.call.Caller))
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
