package gateway

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/apihttp"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/tunnel"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/kubeproxy/callers"
)

// dialError is the error of a failed dial to an agent.
type dialError struct{ error }

// Unwrap returns the cause.
func (e dialError) Unwrap() error { return e.error }

// responseError says why a forwarded request got no response. ctx is the request's own.
func responseError(ctx context.Context, agent string, err error) *apihttp.Error {
	if expired := callers.CertificateError(ctx); expired != nil {
		return expired
	}
	var (
		own     *apihttp.Error
		dialing dialError
	)
	switch cause := context.Cause(ctx); {
	case errors.As(cause, &own):
		return own
	case cause != nil:
		return apihttp.Errorf(apihttp.StatusClientClosedRequest, "the caller went away")
	}
	switch { // dial errors name the agent
	case errors.As(err, &own):
		return own
	case errors.Is(err, tunnel.ErrUnknownAgent):
		return apihttp.Errorf(http.StatusNotFound, "%v: list those that there are with: argocd-agentctl agent list", err)
	case errors.Is(err, apihttp.ErrRedirect):
		return apihttp.Errorf(http.StatusBadGateway, "agent %q: its answer is none of an API server: %v", agent, err)
	case errors.Is(err, tunnel.ErrNotConnected):
		return apihttp.Errorf(http.StatusServiceUnavailable, "%v", err)
	case !errors.As(err, &dialing):
		return apihttp.Errorf(http.StatusBadGateway, "agent %q: the connection broke before an answer came (%v): "+
			"whether the request was carried out is not known: look before you send it again", agent, apihttp.Printable(err.Error())) // it may quote the answer
	case errors.Is(err, context.DeadlineExceeded):
		return apihttp.Errorf(http.StatusGatewayTimeout, "%v: the agent did not take the connection in time: "+
			"see its log, and whether its network is slow", err)
	default:
		return apihttp.Errorf(http.StatusBadGateway, "%v: agents are reached through the principal: "+
			"see --principal-address, and the principal's log", err)
	}
}

// writeError answers a request with an error, at once: over HTTP/1.1 the server would first read the rest of the body. Instead
// the connection is closed, when the caller has had time to read the answer.
func writeError(w http.ResponseWriter, r *http.Request, failure *apihttp.Error) {
	unread := r.ContentLength != 0 && r.ProtoMajor == 1
	if unread || failure.Code == http.StatusUnauthorized { // a newer certificate needs a new connection
		closeConnection(w.Header())
	}
	apihttp.WriteError(w, failure)
	if unread {
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(lingerTimeout))
	}
}
