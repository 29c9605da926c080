package resp

import (
	"bytes"
	"fmt"

	"github.com/tidwall/redcon"
)

// maxHeader bounds the line that holds a length: a type, a sign, ten digits, and the end of the line.
const maxHeader = 14

// Limits bound what one command may be.
type Limits struct {
	Args   int // how many arguments, the command's name included
	Bulk   int // bytes of one argument
	Inline int // bytes of a command on a line of its own
}

// Command is one command of a client. What it holds is valid until the next call of the CommandScanner that found it, and as long
// as the buffer is not written to.
type Command struct {
	// Raw is the command as it goes to Redis. It is a part of the buffer, except for an inline command, which is encoded
	// anew: how Redis and we split a line may differ, and each must make one command of it.
	Raw []byte
	// Args are its name and its arguments. A line or an array of nothing has none, and Redis does not answer it.
	Args   [][]byte
	Inline bool
}

// CommandScanner finds the commands in a client's bytes. It remembers how far it has looked into a command that is not complete.
type CommandScanner struct {
	limits Limits
	inside bool // within an array whose header has been read
	left   int  // arguments that are still to come
	looked int  // where to go on, from the start of the command
	marks  []int
	args   [][]byte
	inline []byte
}

// NewCommandScanner returns a scanner that holds commands to the limits.
func NewCommandScanner(limits Limits) *CommandScanner { return &CommandScanner{limits: limits} }

// NextCommand looks for a command at the start of the buffer, and returns how long it is there: 0 when it is not complete, and then
// NextCommand is to be called again with the same bytes and more of them. Its error is a ProtocolError.
func (s *CommandScanner) NextCommand(buffer []byte) (Command, int, error) {
	if len(buffer) == 0 {
		return Command{}, 0, nil
	}
	switch {
	case s.inside:
	case buffer[0] != '*':
		return s.line(buffer)
	default:
		count, end, err := header(buffer, 0, "invalid multibulk length")
		if err != nil || end == 0 {
			return Command{}, 0, err
		}
		if count > s.limits.Args {
			return Command{}, 0, ProtocolError("invalid multibulk length")
		}
		if count <= 0 {
			return Command{}, end, nil
		}
		s.inside, s.left, s.looked, s.marks = true, count, end, s.marks[:0]
	}
	for s.left > 0 {
		complete, err := s.argument(buffer)
		if err != nil || !complete {
			return Command{}, 0, err
		}
	}
	s.inside = false
	s.args = s.args[:0]
	for i := 0; i < len(s.marks); i += 2 {
		s.args = append(s.args, buffer[s.marks[i]:s.marks[i+1]])
	}
	end := s.looked
	s.looked = 0
	return Command{Raw: buffer[:end], Args: s.args}, end, nil
}

// argument looks for the end of the next argument, and reports whether it is there.
func (s *CommandScanner) argument(buffer []byte) (complete bool, err error) {
	if s.looked >= len(buffer) {
		return false, nil
	}
	if c := buffer[s.looked]; c != '$' {
		return false, ProtocolError(fmt.Sprintf("expected '$', got %q", rune(c)))
	}
	size, begin, err := header(buffer, s.looked, "invalid bulk length")
	if err != nil || begin == 0 {
		return false, err
	}
	if size < 0 || size > s.limits.Bulk {
		return false, ProtocolError("invalid bulk length")
	}
	end := begin + size
	if len(buffer) < end+2 {
		return false, nil
	}
	if buffer[end] != '\r' || buffer[end+1] != '\n' {
		return false, ProtocolError("invalid bulk length")
	}
	s.marks = append(s.marks, begin, end)
	s.looked = end + 2
	s.left--
	return true, nil
}

// header reads the length in the line that begins at a place, and returns where the line ends: 0 when it is not complete.
func header(buffer []byte, at int, complaint ProtocolError) (value, end int, err error) {
	line := buffer[at:]
	if len(line) > maxHeader {
		line = line[:maxHeader]
	}
	stop := bytes.IndexByte(line, '\n')
	if stop < 0 {
		if len(line) == maxHeader {
			return 0, 0, complaint
		}
		return 0, 0, nil
	}
	if stop < 2 || line[stop-1] != '\r' {
		return 0, 0, complaint
	}
	value, ok := number(line[1 : stop-1])
	if !ok {
		return 0, 0, complaint
	}
	return value, at + stop + 1, nil
}

// line reads an inline command.
func (s *CommandScanner) line(buffer []byte) (Command, int, error) {
	from := min(s.looked, len(buffer))
	stop := bytes.IndexByte(buffer[from:], '\n')
	if stop < 0 && len(buffer) <= s.limits.Inline {
		s.looked = len(buffer)
		return Command{}, 0, nil
	}
	s.looked = 0
	if stop < 0 || from+stop > s.limits.Inline {
		return Command{}, 0, ProtocolError("too big inline request")
	}
	if buffer[0] == '$' { // redcon would take it for a command of another protocol
		return Command{}, 0, ProtocolError("expected '*', got '$'")
	}
	end := from + stop + 1
	_, args, _, _, err := redcon.ReadNextCommand(buffer[:end], nil)
	if err != nil {
		return Command{}, 0, ProtocolError("unbalanced quotes in request")
	}
	if len(args) == 0 {
		return Command{}, end, nil
	}
	s.inline = redcon.AppendArray(s.inline[:0], len(args))
	for _, arg := range args {
		s.inline = redcon.AppendBulk(s.inline, arg)
	}
	return Command{Raw: s.inline, Args: args, Inline: true}, end, nil
}
