package apihttp

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
)

// StatusClientClosedRequest is what is logged and counted when the caller went away before the response. Nobody receives it.
const StatusClientClosedRequest = 499

// Error is why a proxy answers a request itself.
type Error struct {
	// Code is the HTTP status.
	Code int
	// Message says what is wrong and what to do.
	Message string
	// Details is a metav1.StatusDetails, nil for none.
	Details any
}

// Error implements error.
func (e *Error) Error() string { return e.Message }

// Errorf returns an Error.
func Errorf(code int, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// status is the JSON form of a metav1.Status.
type status struct {
	Kind       string   `json:"kind"`
	APIVersion string   `json:"apiVersion"`
	Metadata   struct{} `json:"metadata"`
	Status     string   `json:"status"`
	Message    string   `json:"message"`
	Reason     string   `json:"reason,omitempty"`
	Details    any      `json:"details,omitempty"`
	Code       int      `json:"code"`
}

// WriteError answers a request with an Error, as a Kubernetes Status.
func WriteError(w http.ResponseWriter, e *Error) {
	text, err := json.Marshal(status{
		Kind: "Status", APIVersion: "v1", Status: "Failure", Message: e.Message, Reason: reason(e.Code), Details: e.Details, Code: e.Code,
	})
	if err != nil {
		text = nil // impossible: there are only strings and numbers
	}
	header := w.Header()
	header.Set("Content-Type", "application/json")
	header.Set("Cache-Control", "no-cache, private")
	header.Set("Content-Length", strconv.Itoa(len(text)))
	w.WriteHeader(e.Code)
	_, _ = w.Write(text) // a caller that hung up needs no answer
}

// reason returns the metav1.StatusReason of an HTTP status. Kubernetes has none for a bad gateway.
func reason(code int) string {
	switch code {
	case http.StatusBadRequest:
		return "BadRequest"
	case http.StatusUnauthorized:
		return "Unauthorized"
	case http.StatusForbidden:
		return "Forbidden"
	case http.StatusNotFound:
		return "NotFound"
	case http.StatusMethodNotAllowed:
		return "MethodNotAllowed"
	case http.StatusRequestEntityTooLarge:
		return "RequestEntityTooLarge"
	case http.StatusTooManyRequests:
		return "TooManyRequests"
	case http.StatusBadGateway:
		return "BadGateway"
	case http.StatusServiceUnavailable:
		return "ServiceUnavailable"
	case http.StatusRequestTimeout, http.StatusGatewayTimeout:
		return "Timeout"
	default:
		return ""
	}
}
