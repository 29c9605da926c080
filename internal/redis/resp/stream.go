package resp

import (
	"bufio"
	"fmt"

	"github.com/tidwall/redcon"
)

// AppendCommand appends a command of these words.
func AppendCommand(p []byte, words ...string) []byte {
	p = redcon.AppendArray(p, len(words))
	for _, word := range words {
		p = redcon.AppendBulkString(p, word)
	}
	return p
}

// ReadReply reads one reply, or push, of at most limit bytes. reserve, unless it is nil, is asked for each
// part of it before that is kept, by its bytes; that it refuses is an error.
func ReadReply(from *bufio.Reader, limit int, reserve func(bytes int) bool) (reply []byte, err error) {
	var replies ReplyScanner
	for {
		if _, err := from.Peek(1); err != nil {
			return nil, err
		}
		there, err := from.Peek(from.Buffered())
		if err != nil {
			return nil, err
		}
		n, done, err := replies.NextReply(there)
		if err != nil {
			return nil, err
		}
		if len(reply)+n > limit || (reserve != nil && !reserve(n)) {
			return nil, fmt.Errorf("an answer is too large: more than %d bytes, or too much at once", len(reply))
		}
		reply = append(reply, there[:n]...)
		if _, err := from.Discard(n); err != nil {
			return nil, err
		}
		if done {
			return reply, nil
		}
	}
}
