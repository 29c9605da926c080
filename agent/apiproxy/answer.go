package apiproxy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var errRedirect = errors.New("it redirects, which is not followed")

// clientGone is the code that is written down when nobody waited for an answer. Nobody gets to see it.
const clientGone = 499

// refuse answers with an API server's status.
func refuse(w http.ResponseWriter, err error) {
	status := metav1.Status{Code: http.StatusInternalServerError, Message: err.Error(), Status: metav1.StatusFailure}
	var known apierrors.APIStatus
	if errors.As(err, &known) {
		status = known.Status()
	}
	status.Kind, status.APIVersion = "Status", "v1"
	text, err := json.Marshal(status)
	if err != nil {
		text = nil // cannot be: a status is plain text and numbers
	}
	header := w.Header()
	header.Set("Content-Type", "application/json")
	header.Set("Content-Length", strconv.Itoa(len(text)))
	header.Set("Cache-Control", "no-cache, private")
	if status.Code == http.StatusServiceUnavailable || status.Code == http.StatusTooManyRequests {
		header.Set("Retry-After", "1")
	}
	w.WriteHeader(int(status.Code))
	_, _ = w.Write(text) // whoever hung up needs no answer
}

func statusError(code int, reason metav1.StatusReason, format string, a ...any) *apierrors.StatusError {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: int32(code), Reason: reason, Message: fmt.Sprintf(format, a...), //nolint:gosec // an HTTP code
	}}
}

// asStatus makes an error that is none of the request's a status.
func asStatus(err error) error {
	var known apierrors.APIStatus
	switch {
	case errors.As(err, &known) && known.Status().Code < 500:
		return err
	case errors.Is(err, context.Canceled):
		return statusError(clientGone, "ClientGone", "the caller did not wait")
	default:
		return statusError(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable,
			"the agent cannot find out whether this is allowed: %v", err)
	}
}

// unanswered says why there is no answer of the API server.
func unanswered(err error) error {
	var timeout net.Error
	switch {
	case errors.Is(err, context.Canceled):
		return statusError(clientGone, "ClientGone", "the caller did not wait")
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return statusError(http.StatusGatewayTimeout, metav1.StatusReasonTimeout, "this cluster's API server does not answer in time: %v", err)
	default:
		return statusError(http.StatusBadGateway, "BadGateway", "this cluster's API server gives no answer: %v", err)
	}
}
