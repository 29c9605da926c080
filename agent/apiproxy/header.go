package apiproxy

import (
	"fmt"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// CallerHeader says who asks, as kubeproxy has found out.
const CallerHeader = "Argocd-Agent-Caller"

// tokenProtocol begins the WebSocket sub-protocol that carries a bearer token, for browsers that can send no header.
const tokenProtocol = "base64url.bearer.authorization.k8s.io."

// checkHeader refuses headers that have two readings. All else is dropped, or passed on.
func checkHeader(header http.Header) error {
	for _, single := range []string{
		"Authorization", "Content-Type", "Upgrade", "Impersonate-User", "Impersonate-Uid", CallerHeader,
	} {
		if len(header[single]) > 1 {
			return badRequest("its header %s is repeated", single)
		}
	}
	// Whatever else Connection names would be dropped on the way, also a header that the decision rests on.
	for _, value := range header["Connection"] {
		for option := range strings.SplitSeq(value, ",") {
			switch strings.ToLower(strings.TrimSpace(option)) {
			case "", "keep-alive", "close", "upgrade":
			default:
				return badRequest("its header Connection names %.40q", option)
			}
		}
	}
	switch upgrade := header.Get("Upgrade"); {
	case upgrade == "", strings.EqualFold(upgrade, "websocket"), strings.EqualFold(upgrade, "SPDY/3.1"):
	default:
		return badRequest("it asks for an upgrade to %.40q", upgrade)
	}
	for _, value := range header["Sec-Websocket-Protocol"] {
		for protocol := range strings.SplitSeq(value, ",") {
			if strings.HasPrefix(strings.TrimSpace(protocol), tokenProtocol) {
				return badRequest("it carries a token as a WebSocket protocol")
			}
		}
	}
	return nil
}

func badRequest(format string, a ...any) error {
	return apierrors.NewBadRequest("the agent refuses this request: " + fmt.Sprintf(format, a...))
}

// dropHeader takes out what must not reach the API server: proof of who somebody is, which only the agent gives here, and
// what invites a transport to send a request again.
func dropHeader(header http.Header) {
	for name := range header {
		switch name {
		case "Authorization", "Cookie", "X-Real-Ip", "Idempotency-Key", "X-Idempotency-Key", CallerHeader:
			delete(header, name)
			continue
		}
		for _, proxies := range []string{"X-Remote-", "X-Forwarded-", "X-Envoy-"} {
			if strings.HasPrefix(name, proxies) {
				delete(header, name)
			}
		}
	}
}
