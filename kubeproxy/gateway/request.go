package gateway

import (
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/apihttp"
)

// rewrite makes the request for the agent: the same, without the caller's credentials.
func rewrite(request *httputil.ProxyRequest) {
	call := forwardedOf(request.Out.Context()).call
	in, out := request.In, request.Out
	// Opaque keeps the path as the caller encoded it, byte for byte.
	out.URL = &url.URL{
		Scheme: "http", Host: string(call.Agent), Opaque: call.Path,
		RawQuery: in.URL.RawQuery, ForceQuery: in.URL.ForceQuery,
	}
	out.Host = string(call.Agent)
	out.Trailer = in.Trailer // the server fills it in at the end of the body
	apihttp.DropCredentials(out.Header)
	out.Header.Set(apihttp.CallerHeader, apihttp.Printable(call.Caller))
}

// requestKind is how long a request may take.
type requestKind string

const (
	kindRequest requestKind = "request" // the response must begin within the timeout
	kindStream  requestKind = "stream"  // watches and logs, whose response may begin late and does not end
	kindUpgrade requestKind = "upgrade" // exec, attach, port-forward
)

// kindOf returns the kind of a request. API servers recognise long-running requests in the same way.
func kindOf(r *http.Request, path string) requestKind {
	switch {
	case r.Header.Get("Upgrade") != "":
		return kindUpgrade
	case queryFlag(r.URL.RawQuery, "watch"), queryFlag(r.URL.RawQuery, "follow"):
		return kindStream
	}
	switch subresource(path) {
	case "attach", "exec", "log", "portforward", "proxy", "watch":
		return kindStream
	}
	return kindRequest
}

// subresource returns the subresource that a path names, or the verb before the resource, as API servers once had them. Objects and
// namespaces may have such names, and are no streams.
func subresource(path string) string {
	segments := strings.Split(strings.Trim(path, "/"), "/")
	switch {
	case segments[0] == "api" && len(segments) > 2:
		segments = segments[2:]
	case segments[0] == "apis" && len(segments) > 3:
		segments = segments[3:]
	default:
		return ""
	}
	if slices.Contains([]string{"proxy", "watch"}, segments[0]) {
		return segments[0]
	}
	if segments[0] == "namespaces" && len(segments) > 3 { // of a namespace itself there is no such subresource
		segments = segments[2:]
	}
	if len(segments) < 3 {
		return ""
	}
	return segments[2]
}

// queryFlag reports whether a query sets a boolean parameter, as an API server reads it.
func queryFlag(query, name string) bool {
	if !strings.Contains(query, name) {
		return false
	}
	values, _ := url.ParseQuery(query) // it returns what it could parse
	if !values.Has(name) {
		return false
	}
	value := values.Get(name)
	return value != "0" && !strings.EqualFold(value, "false")
}

// parameterNames returns the names of a query's parameters, for the log, as "command,container". What is no plain word
// with a value is shown as a question mark: the rest of a value whose ampersand was not encoded looks like a name.
func parameterNames(query string) string {
	const most = 16
	var names []string
	for parameter := range strings.SplitSeq(query, "&") {
		name, _, valued := strings.Cut(parameter, "=")
		if parameter == "" {
			continue
		}
		if !valued || len(name) > 32 || strings.Trim(name, letters) != "" {
			name = "?"
		}
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
		if len(names) == most {
			break
		}
	}
	return strings.Join(names, ",")
}

const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

// verbOf returns the label verb of the metrics, which has few values.
func verbOf(r *http.Request, kind requestKind) string {
	switch {
	case kind == kindUpgrade:
		return "UPGRADE"
	case kind == kindStream && r.Method == http.MethodGet:
		return "WATCH"
	}
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions:
		return r.Method
	default:
		return "OTHER"
	}
}
