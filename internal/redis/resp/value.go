package resp

// Elements returns the values that a complete reply is a collection of, or nil when it is none.
func Elements(reply []byte) [][]byte {
	if len(reply) == 0 {
		return nil
	}
	switch reply[0] {
	case '*', '~', '>', '%':
	default:
		return nil
	}
	_, begin, err := header(reply, 0, "")
	if err != nil || begin == 0 {
		return nil
	}
	var elements [][]byte
	for rest := reply[begin:]; len(rest) > 0; {
		var one ReplyScanner
		n, done, err := one.NextReply(rest)
		if err != nil || !done {
			return nil
		}
		elements = append(elements, rest[:n])
		rest = rest[n:]
	}
	return elements
}

// Text returns what a complete reply says that is a text: a string, an error, a number. ok is false for a null and for
// a collection.
func Text(reply []byte) (text []byte, ok bool) {
	if len(reply) < 3 {
		return nil, false
	}
	switch reply[0] {
	case '+', '-', ':', '(', ',':
		return reply[1 : len(reply)-2], true
	case '$', '=', '!':
		size, begin, err := header(reply, 0, "")
		if err != nil || size < 0 || len(reply) < begin+size {
			return nil, false
		}
		return reply[begin : begin+size], true
	default:
		return nil, false
	}
}

// Null reports whether a reply is one, in either version of the protocol.
func Null(reply []byte) bool {
	return len(reply) > 1 && (reply[0] == '_' || (reply[1] == '-' && (reply[0] == '$' || reply[0] == '*')))
}

// Lower writes a word in lower case into a buffer, and returns it there. A word that does not fit comes out cut.
func Lower(into, word []byte) []byte {
	n := copy(into, word)
	for i, c := range into[:n] {
		if c >= 'A' && c <= 'Z' {
			into[i] = c + 'a' - 'A'
		}
	}
	return into[:n]
}
