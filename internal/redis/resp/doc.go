// Package resp finds where commands and replies end in a stream of bytes, in the protocol that Redis speaks: RESP, in its
// versions 2 and 3. It looks at no more than it must, copies nothing, and believes no length before it was checked.
//
// It stands in front of redcon, whose parsers take a length for granted: one near the largest integer makes them panic, a
// large one makes them grow without end, and a command that comes in pieces is looked at again from its start with every
// piece. What this package lets pass is a subset of what Redis accepts, so that Redis and we always agree on where a command
// ends.
package resp

import "errors"

// ProtocolError is what is wrong with what a client sent, in Redis' own words. The connection is of no use after it.
type ProtocolError string

func (e ProtocolError) Error() string { return "Protocol error: " + string(e) }

// ErrReply says that what came from a server is no reply.
var ErrReply = errors.New("a reply is malformed")

// number reads a decimal number as Redis does: no plus, no leading zero, nothing else. It takes at most ten digits, and so
// cannot overflow.
func number(digits []byte) (value int, ok bool) {
	negative := len(digits) > 0 && digits[0] == '-'
	if negative {
		digits = digits[1:]
	}
	if len(digits) == 0 || len(digits) > 10 || (digits[0] == '0' && (negative || len(digits) > 1)) {
		return 0, false
	}
	for _, d := range digits {
		if d < '0' || d > '9' {
			return 0, false
		}
		value = value*10 + int(d-'0')
	}
	if negative {
		value = -value
	}
	return value, true
}
