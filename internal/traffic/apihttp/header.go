// Package apihttp is what the two HTTP proxies in front of a spoke's API server have in common, kubeproxy on the hub and
// apiproxy in the agent: which headers they refuse and which they drop, that they pass on no redirect, and the Kubernetes
// Status objects that they answer with themselves. The agent does not rely on kubeproxy: each checks everything.
package apihttp

import (
	"errors"
	"iter"
	"net/http"
	"slices"
	"strings"
)

const (
	// CallerHeader is how kubeproxy tells the agent who asks, for its audit log. A caller's own is dropped.
	CallerHeader = "Argocd-Agent-Caller"
	// MaxHeaderBytes bounds the headers of requests and of responses. It is the API server's own limit.
	MaxHeaderBytes = 1 << 20

	protocolsHeader = "Sec-Websocket-Protocol"
	// bearerProtocol begins the WebSocket subprotocol in which a browser sends a bearer token.
	bearerProtocol = "base64url.bearer.authorization."
)

// CheckHeaders refuses headers that this proxy could read in one way and the next server in another. Its error is an *Error.
func CheckHeaders(header http.Header) error {
	for _, name := range []string{
		"Authorization", "Content-Type", "Upgrade", "Impersonate-User", "Impersonate-Uid", CallerHeader,
	} {
		if count := len(header[name]); count > 1 {
			return Errorf(http.StatusBadRequest, "%d headers %s: send one", count, name)
		}
	}
	switch upgrade := header.Get("Upgrade"); strings.ToLower(upgrade) {
	case "", "websocket", "spdy/3.1":
	default: // such as h2c, in which requests would pass unchecked
		return Errorf(http.StatusBadRequest, "upgrade to %.40q: only WebSocket and SPDY/3.1 are passed on", upgrade)
	}
	for option := range listed(header["Connection"]) {
		switch strings.ToLower(option) {
		case "", "close", "keep-alive", "upgrade", "te":
		default:
			// A proxy removes each header that Connection names, such as the one that says whose rights a request has.
			return Errorf(http.StatusBadRequest, "header Connection names %.40q: it may name close, keep-alive, upgrade and te only", option)
		}
	}
	return nil
}

// CheckUpgrade refuses a body in a request that asks for an upgrade. Once the protocol changes, the rest of such a body and what
// comes in the new protocol could not be told apart, and a proxy would read both at the same time. Kubernetes' clients send none.
func CheckUpgrade(r *http.Request) error {
	if r.Header.Get("Upgrade") != "" && r.ContentLength != 0 {
		return Errorf(http.StatusBadRequest, "upgrade to %.40q: the request has a body: send none", r.Header.Get("Upgrade"))
	}
	return nil
}

// DropCredentials removes the headers that prove to this proxy who the caller is, those that claim to the next server who it
// is, and those that make an http.Transport send a POST twice.
func DropCredentials(header http.Header) {
	for name := range header {
		switch name {
		case "Authorization", "Cookie", "X-Real-Ip", "Idempotency-Key", "X-Idempotency-Key", CallerHeader:
			delete(header, name)
			continue
		}
		for _, prefix := range []string{"X-Forwarded-", "X-Remote-", "X-Envoy-"} {
			if strings.HasPrefix(name, prefix) {
				delete(header, name)
			}
		}
	}
	if !HasBearerProtocol(header) {
		return
	}
	var kept []string
	for protocol := range listed(header[protocolsHeader]) {
		if !strings.HasPrefix(protocol, bearerProtocol) {
			kept = append(kept, protocol)
		}
	}
	delete(header, protocolsHeader)
	if len(kept) > 0 {
		header.Set(protocolsHeader, strings.Join(kept, ", "))
	}
}

// DropImpersonation removes the headers that ask the API server to act as another user.
func DropImpersonation(header http.Header) {
	for name := range header {
		if strings.HasPrefix(name, "Impersonate-") {
			delete(header, name)
		}
	}
}

// HasBearerProtocol reports whether a bearer token is among the WebSocket subprotocols.
func HasBearerProtocol(header http.Header) bool {
	return slices.ContainsFunc(slices.Collect(listed(header[protocolsHeader])), func(protocol string) bool {
		return strings.HasPrefix(protocol, bearerProtocol)
	})
}

// listed yields the elements of a header that is a comma-separated list.
func listed(values []string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, value := range values {
			for element := range strings.SplitSeq(value, ",") {
				if !yield(strings.TrimSpace(element)) {
					return
				}
			}
		}
	}
}

// ErrRedirect is the error of a response that redirects.
var ErrRedirect = errors.New("it redirects, which is not passed on")

// RefuseRedirect is for httputil.ReverseProxy.ModifyResponse. API servers do not redirect, and most clients would follow a
// redirect of a spoke, and show what they find there.
func RefuseRedirect(response *http.Response) error {
	if response.StatusCode >= 300 && response.StatusCode < 400 && response.Header.Get("Location") != "" {
		return ErrRedirect
	}
	return nil
}

// Printable returns text that a caller chose as it may stand in a header or a log line.
func Printable(text string) string {
	const longest = 256
	clean := strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, text)
	return clean[:min(len(clean), longest)]
}
