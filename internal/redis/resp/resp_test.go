package resp_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/redcon"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/redis/resp"
)

func limits() resp.Limits { return resp.Limits{Args: 1000, Bulk: 1 << 20, Inline: 1000} }

// scan returns the commands in a client's bytes that come in pieces of a size, and what is wrong with the rest.
func scan(input []byte, piece int) (commands [][]string, raw []byte, err error) {
	scanner := resp.NewCommandScanner(limits())
	start := 0
	for end := 0; end < len(input); {
		end = min(end+piece, len(input))
		for {
			cmd, n, err := scanner.NextCommand(input[start:end])
			if err != nil {
				return commands, raw, err
			}
			if n == 0 {
				break
			}
			start += n
			raw = append(raw, cmd.Raw...)
			words := []string{}
			for _, arg := range cmd.Args {
				words = append(words, string(arg))
			}
			if len(words) > 0 {
				commands = append(commands, words)
			}
		}
	}
	return commands, raw, nil
}

// replies returns the replies in a server's bytes that come in pieces of a size.
func replies(input []byte, piece int) (found [][]byte, err error) {
	var r resp.ReplyScanner
	var one []byte
	for len(input) > 0 {
		p := input[:min(piece, len(input))]
		input = input[len(p):]
		for len(p) > 0 {
			n, done, err := r.NextReply(p)
			if err != nil {
				return found, err
			}
			one = append(one, p[:n]...)
			p = p[n:]
			if done {
				found, one = append(found, one), nil
			}
		}
	}
	return found, nil
}

func TestEveryKindOfReplyHasAnEnd(t *testing.T) {
	t.Parallel()
	kinds := []string{
		"+OK\r\n", "-ERR x\r\n", ":-12\r\n", "$-1\r\n", "$0\r\n\r\n", "$5\r\na\r\nbc\r\n", "*-1\r\n", "*0\r\n", "*2\r\n:1\r\n*1\r\n$1\r\nx\r\n",
		"_\r\n", "#t\r\n", ",1.5e3\r\n", "(12345678901234567890\r\n", "!3\r\nERR\r\n", "=5\r\ntxt:x\r\n", "%1\r\n+a\r\n:1\r\n", "~2\r\n:1\r\n:2\r\n",
		">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$0\r\n\r\n", "|1\r\n+ttl\r\n:1\r\n+OK\r\n", "*1\r\n|1\r\n+a\r\n*0\r\n%2\r\n:1\r\n:2\r\n:3\r\n:4\r\n", "%0\r\n",
	}
	all := []byte(strings.Join(kinds, ""))
	for piece := 1; piece < 40; piece++ {
		found, err := replies(all, piece)
		require.NoError(t, err)
		require.Len(t, found, len(kinds))
		for i, kind := range kinds {
			require.Equal(t, kind, string(found[i]))
		}
	}
}

func TestInvalidReplyIsRefused(t *testing.T) {
	t.Parallel()
	for _, input := range []string{
		"x", "\r\n", "$x\r\n", "$-2\r\n", "$\r\n", "*1\n", "$1234567890123\r\n", "$9999999999999999999999", "*9999999999\r\n*9999999999\r\n", "%9999999999\r\n",
		"$?\r\n", "*01\r\n",
	} {
		_, err := replies([]byte(input), 3)
		require.ErrorIs(t, err, resp.ErrReply, "%q", input)
	}
}

func TestElementsAndTexts(t *testing.T) {
	t.Parallel()
	elements := resp.Elements([]byte("*4\r\n$1\r\na\r\n*1\r\n:2\r\n_\r\n$-1\r\n"))
	require.Len(t, elements, 4)
	text, ok := resp.Text(elements[0])
	require.True(t, ok)
	require.Equal(t, "a", string(text))
	require.True(t, resp.Null(elements[2]))
	require.True(t, resp.Null(elements[3]))
	_, ok = resp.Text(elements[3])
	require.False(t, ok)
	require.Nil(t, resp.Elements([]byte("+OK\r\n")))
	require.Equal(t, "get", string(resp.Lower(make([]byte, 3), []byte("GeTx"))))
}

// Commands are found wherever they are cut; what redcon finds in the same bytes is the same, and nothing is made larger.
func FuzzScanner(f *testing.F) {
	for _, seed := range []string{
		"*1\r\n$4\r\nPING\r\n", "*2\r\n$3\r\nGET\r\n$1\r\na\r\n*0\r\nPING\r\n", "*-1\r\n*3\r\n$3\r\nSET\r\n$0\r\n\r\n$2\r\n\r\n\r\n", "GET \"a b\" 'c'\r\n",
		"*1\r\n$9223372036854775807\r\n", "*9999999999\r\n", "$4\r\nPING\r\n", "*1\r\n$-1\r\n", "*1\n", "*01\r\n", " \n\r\n\tx\n", "\"\\x\"\n",
	} {
		f.Add([]byte(seed), uint8(3))
	}
	f.Fuzz(func(t *testing.T, input []byte, piece uint8) {
		whole, raw, err := scan(input, len(input)+1)
		cut, cutRaw, cutErr := scan(input, int(piece)+1)
		require.Equal(t, whole, cut)
		require.Equal(t, raw, cutRaw)
		require.Equal(t, err == nil, cutErr == nil)
		if err != nil {
			require.ErrorAs(t, err, new(resp.ProtocolError))
		}
		again, _, err := scan(raw, len(raw)+1)
		require.NoError(t, err, "what goes to Redis is well-formed")
		require.Equal(t, whole, again)
		for _, words := range whole { // and redcon, which Redis agrees with as far as anybody knows, reads the same
			var p []byte
			p = redcon.AppendArray(p, len(words))
			for _, word := range words {
				p = redcon.AppendBulkString(p, word)
			}
			cmd, err := redcon.Parse(p)
			require.NoError(t, err)
			require.Len(t, cmd.Args, len(words))
			require.True(t, bytes.Contains(raw, p))
		}
	})
}

// Replies end where they do wherever they are cut.
func FuzzReplies(f *testing.F) {
	for _, seed := range []string{"+OK\r\n", "$3\r\nabc\r\n", "*2\r\n:1\r\n$-1\r\n", "%1\r\n+a\r\n_\r\n", "|1\r\n+a\r\n:1\r\n>1\r\n+x\r\n", "*-1\r\n", "$99"} {
		f.Add([]byte(seed), uint8(1))
	}
	f.Fuzz(func(t *testing.T, input []byte, piece uint8) {
		whole, err := replies(input, len(input)+1)
		cut, cutErr := replies(input, int(piece)+1)
		require.Equal(t, whole, cut)
		require.Equal(t, err, cutErr)
		for _, one := range whole {
			n, done, err := new(resp.ReplyScanner).NextReply(one)
			require.NoError(t, err)
			require.True(t, done)
			require.Equal(t, len(one), n)
			resp.Elements(one)
			resp.Text(one)
			resp.Null(one)
		}
	})
}
