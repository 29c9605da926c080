package gateway

import (
	"context"
	"errors"
	"net/http"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/apihttp"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/tunnel"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/kubeproxy/callers"
)

// dialError is that no conversation with the agent came about.
type dialError struct{ error }

// Unwrap returns the cause.
func (e dialError) Unwrap() error { return e.error }

// explain says why a request came to nothing. ctx is the request's own.
func explain(ctx context.Context, agent string, err error) *apihttp.Error {
	var (
		known   *apihttp.Error
		dialled dialError
	)
	if known = callers.CertificateError(ctx); known != nil {
		return known
	}
	switch cause := context.Cause(ctx); {
	case errors.As(cause, &known):
		return known
	case cause != nil:
		return apihttp.Errorf(apihttp.StatusClientClosedRequest, "the caller went away")
	}
	switch { // the errors of a dial name the agent
	case errors.Is(err, tunnel.ErrUnknown):
		return apihttp.Errorf(http.StatusNotFound, "%v: list those that there are with: argocd-agentctl agent list", err)
	case errors.Is(err, apihttp.ErrRedirect):
		return apihttp.Errorf(http.StatusBadGateway, "agent %q: its answer is none of an API server: %v", agent, err)
	case errors.Is(err, tunnel.ErrAway):
		return apihttp.Errorf(http.StatusServiceUnavailable, "%v", err)
	case !errors.As(err, &dialled):
		return apihttp.Errorf(http.StatusBadGateway, "agent %q: the connection broke before an answer came (%v): "+
			"whether the request was carried out is not known: look before you send it again", agent, err)
	case errors.Is(err, context.DeadlineExceeded):
		return apihttp.Errorf(http.StatusGatewayTimeout, "%v: the agent did not take the connection in time: "+
			"see its log, and whether its network is slow", err)
	default:
		return apihttp.Errorf(http.StatusBadGateway, "%v: agents are reached through the principal: "+
			"see --principal-address, and the principal's log", err)
	}
}
