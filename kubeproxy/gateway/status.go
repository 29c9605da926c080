package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/tunnel"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/kubeproxy/callers"
)

// codeGone is what is noted of a request whose caller went away. Nobody reads the answer.
const codeGone = 499

// status is Kubernetes' own body of an answer that is no success: a metav1.Status.
type status struct {
	Kind       string   `json:"kind"`
	APIVersion string   `json:"apiVersion"`
	Metadata   struct{} `json:"metadata"`
	Status     string   `json:"status"`
	Message    string   `json:"message"`
	Reason     string   `json:"reason,omitempty"`
	Code       int      `json:"code"`
}

// reasonOf is Kubernetes' word for an HTTP status. It has none for a bad gateway.
func reasonOf(code int) string {
	switch code {
	case http.StatusBadRequest:
		return "BadRequest"
	case http.StatusUnauthorized:
		return "Unauthorized"
	case http.StatusForbidden:
		return "Forbidden"
	case http.StatusNotFound:
		return "NotFound"
	case http.StatusBadGateway:
		return "BadGateway"
	case http.StatusServiceUnavailable:
		return "ServiceUnavailable"
	case http.StatusGatewayTimeout:
		return "Timeout"
	default:
		return ""
	}
}

// writeStatus answers with a Status. There is no Retry-After when the agent is away: client-go would ask ten times before
// it tells the person who clicked.
func writeStatus(w http.ResponseWriter, why *callers.RefusedError) {
	body := status{
		Kind: "Status", APIVersion: "v1", Status: "Failure",
		Message: why.Error(), Reason: reasonOf(why.Code), Code: why.Code,
	}
	header := w.Header()
	if why.Code == http.StatusUnauthorized {
		header.Set("Connection", "close") // a newer certificate needs a new connection
	}
	text, err := json.Marshal(body)
	if err != nil {
		text = nil // it cannot be: there is nothing in it but texts and numbers
	}
	header.Set("Content-Type", "application/json")
	header.Set("Cache-Control", "no-cache, private")
	header.Set("Content-Length", strconv.Itoa(len(text)))
	w.WriteHeader(why.Code)
	_, _ = w.Write(text) // a caller that hung up needs no answer
}

// dialError is that no conversation with the agent came about.
type dialError struct{ error }

// Unwrap returns the cause.
func (e dialError) Unwrap() error { return e.error }

// explain says why a request came to nothing. ctx is the request's own.
func explain(ctx context.Context, agent string, err error) *callers.RefusedError {
	var (
		known   *callers.RefusedError
		dialled dialError
	)
	if known = callers.Unproven(ctx); known != nil {
		return known
	}
	switch cause := context.Cause(ctx); {
	case errors.As(cause, &known):
		return known
	case cause != nil:
		return callers.Refuse(codeGone, "the caller went away")
	}
	switch { // the errors of a dial name the agent
	case errors.Is(err, tunnel.ErrUnknown):
		return callers.Refuse(http.StatusNotFound, "%v: list those that there are with: argocd-agentctl agent list", err)
	case errors.Is(err, errRedirect):
		return callers.Refuse(http.StatusBadGateway, "agent %q: its answer is none of an API server: %v", agent, err)
	case errors.Is(err, tunnel.ErrAway):
		return callers.Refuse(http.StatusServiceUnavailable, "%v", err)
	case !errors.As(err, &dialled):
		return callers.Refuse(http.StatusBadGateway, "agent %q: the connection broke before an answer came (%v): "+
			"whether the request was carried out is not known: look before you send it again", agent, err)
	case errors.Is(err, context.DeadlineExceeded):
		return callers.Refuse(http.StatusGatewayTimeout, "%v: the agent did not take the connection in time: "+
			"see its log, and whether its network is slow", err)
	default:
		return callers.Refuse(http.StatusBadGateway, "%v: agents are reached through the principal: "+
			"see --principal-address, and the principal's log", err)
	}
}
