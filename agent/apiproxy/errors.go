package apiproxy

import (
	"context"
	"errors"
	"net"
	"net/http"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/apihttp"
)

// refuse answers a request that is not forwarded, or to which the API server did not respond.
func refuse(w http.ResponseWriter, why *apihttp.Error) {
	if why.Code == http.StatusServiceUnavailable || why.Code == http.StatusTooManyRequests {
		w.Header().Set("Retry-After", "1")
	}
	apihttp.WriteError(w, why)
}

// decisionError says why there is no decision: the request is invalid, or the agent cannot find out.
func decisionError(err error) *apihttp.Error {
	var own *apihttp.Error
	switch {
	case errors.As(err, &own):
		return own
	case errors.Is(err, context.Canceled):
		return apihttp.Errorf(apihttp.StatusClientClosedRequest, "the caller did not wait")
	default:
		return apihttp.Errorf(http.StatusServiceUnavailable, "the agent cannot find out whether this is allowed: %v", err)
	}
}

// upstreamError says why the API server did not respond.
func upstreamError(err error) *apihttp.Error {
	var timeout net.Error
	switch {
	case errors.Is(err, context.Canceled):
		return apihttp.Errorf(apihttp.StatusClientClosedRequest, "the caller did not wait")
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return apihttp.Errorf(http.StatusGatewayTimeout, "this cluster's API server does not answer in time: %v", err)
	default:
		return apihttp.Errorf(http.StatusBadGateway, "this cluster's API server gives no answer: %v", err)
	}
}
