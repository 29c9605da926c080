package callers

import "fmt"

// RefusedError is why a request is not served.
type RefusedError struct {
	// Code is the HTTP status that says so.
	Code int
	text string
}

// Error tells whoever asked what to do.
func (r *RefusedError) Error() string { return r.text }

// Refuse makes a RefusedError. The text says what is wrong and what to do.
func Refuse(code int, format string, args ...any) *RefusedError {
	return &RefusedError{Code: code, text: fmt.Sprintf(format, args...)}
}
