package enrollment

import (
	"fmt"

	"google.golang.org/grpc/codes"
)

// refusal is an error whose text is for the caller. It is a type of its own, and no gRPC status: an error of the hub may have one of those in
// it, and must not get out with it.
type refusal struct {
	code codes.Code
	text string
	// reason is for the log alone; nil if the text says it all.
	reason error
}

// refuse returns a refusal.
func refuse(code codes.Code, format string, args ...any) error {
	return &refusal{code: code, text: fmt.Sprintf(format, args...)}
}

// Error is for the log.
func (r *refusal) Error() string {
	if r.reason == nil {
		return r.text
	}
	return fmt.Sprintf("%s: %v", r.text, r.reason)
}
