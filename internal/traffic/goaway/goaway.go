// Package goaway is how a principal that shuts down has others go elsewhere: the status with which it ends their streams. It is what HTTP/2
// calls GOAWAY (RFC 9113, section 6.8), for one stream of a connection, whose others go on.
package goaway

import (
	"errors"
	"fmt"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// How the status is known, see google.rpc.ErrorInfo. The code alone is also that of a network which fails.
const (
	reason = "DRAINING"
	domain = "argocd-agent-mesh"
)

// Err means that the principal shuts down: connect again.
var Err = draining()

func draining() error {
	s, err := status.New(codes.Unavailable, "the principal is shutting down: connect again").WithDetails(&errdetails.ErrorInfo{Reason: reason, Domain: domain})
	if err != nil {
		panic(fmt.Sprintf("details of a status that is one: %v", err)) //nolint:forbidigo // the message is one of ours
	}
	return s.Err()
}

// Is reports whether a stream ended with Err, as its other end sees that.
func Is(err error) bool {
	var of interface{ GRPCStatus() *status.Status }
	if !errors.As(err, &of) || of.GRPCStatus().Code() != codes.Unavailable {
		return false
	}
	for _, detail := range of.GRPCStatus().Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok && info.GetReason() == reason && info.GetDomain() == domain {
			return true
		}
	}
	return false
}
