package resp

import "bytes"

// maxElements bounds what one reply may still be made of. Redis' own bound for one array is lower.
const maxElements = 1 << 32

// ReplyScanner finds where replies end in what a server sends, piece by piece: what it has seen need not be kept.
type ReplyScanner struct {
	left  int  // values that are missing until the reply is complete
	skip  int  // bytes to pass over: a string and the end of its line
	text  bool // within a line of text, whose content is of no interest
	kind  byte // of the reply
	line  [maxHeader]byte
	lined int // how much of a line with a length is in line
}

// Kind is the first byte of the reply that is being looked at, or was last: '-' is an error, '>' a push.
func (r *ReplyScanner) Kind() byte { return r.kind }

// BetweenReplies reports whether the next byte is the first of a reply.
func (r *ReplyScanner) BetweenReplies() bool { return r.left == 0 }

// NextReply looks at bytes that follow those of the last call, up to the end of the reply that they belong to. It returns how
// many of them belong to it, and whether it ends there.
func (r *ReplyScanner) NextReply(b []byte) (n int, done bool, err error) {
	if r.left == 0 {
		if len(b) == 0 {
			return 0, false, nil
		}
		r.left, r.kind = 1, b[0]
	}
	for n < len(b) {
		switch {
		case r.skip > 0:
			step := min(r.skip, len(b)-n)
			r.skip -= step
			n += step
			if r.skip == 0 {
				r.left--
			}
		case r.text:
			end := bytes.IndexByte(b[n:], '\n')
			if end < 0 {
				return len(b), false, nil
			}
			n += end + 1
			r.text = false
			r.left--
		default:
			step, err := r.head(b[n:])
			if err != nil {
				return n, false, err
			}
			n += step
		}
		if r.left == 0 && r.skip == 0 && !r.text {
			return n, true, nil
		}
	}
	return n, false, nil
}

// head reads the first line of a value, or more of it, and returns how many bytes of it there were.
func (r *ReplyScanner) head(b []byte) (int, error) {
	if r.lined == 0 {
		switch b[0] {
		case '+', '-', ':', '_', '#', ',', '(':
			r.text = true
			return 1, nil
		case '$', '*', '%', '~', '>', '|', '=', '!':
		default:
			return 0, ErrReply
		}
	}
	end := bytes.IndexByte(b, '\n')
	step := end + 1
	if end < 0 {
		step = len(b)
	}
	if step > len(r.line)-r.lined {
		return 0, ErrReply
	}
	r.lined += copy(r.line[r.lined:], b[:step])
	if end < 0 {
		return step, nil
	}
	line := r.line[:r.lined]
	r.lined = 0
	if len(line) < 4 || line[len(line)-2] != '\r' {
		return 0, ErrReply
	}
	value, ok := number(line[1 : len(line)-2])
	if !ok || value < -1 {
		return 0, ErrReply
	}
	return step, r.begin(line[0], value)
}

// begin takes in the length of a string or of a collection.
func (r *ReplyScanner) begin(kind byte, length int) error {
	switch {
	case length == -1: // RESP2's null
		r.left--
	case kind == '$' || kind == '=' || kind == '!':
		r.skip = length + 2
	case kind == '*' || kind == '~' || kind == '>':
		r.left += length - 1
	case kind == '%':
		r.left += 2*length - 1
	case kind == '|': // attributes come before what they are of, and are none of it
		r.left += 2 * length
	}
	if r.left > maxElements {
		return ErrReply
	}
	return nil
}
