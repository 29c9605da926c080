package program_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/program"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/settings"
)

// chosen are the settings of a program that says a word.
type chosen struct{ word, help string }

func (c *chosen) Help() string { return c.help }

func read(args []string, lookup func(string) (string, bool)) (*chosen, error) {
	c := &chosen{}
	set := settings.New("speaker", lookup)
	set.String(&c.word, "word", "WORD", "nothing", "what to say", settings.NonEmpty)
	c.help = set.Help()
	return c, set.Parse(args)
}

func TestMainRunsAProgram(t *testing.T) {
	for name, c := range map[string]struct {
		args        []string
		code        int
		output, log string
	}{
		"as it is told":  {[]string{"--word=hello"}, 0, "", "hello"},
		"to its failure": {[]string{"--word=fail"}, 1, "", "speaker: it failed\n"},
		"not at all":     {[]string{"--word="}, 1, "", `speaker: --word or WORD: "" (by flag): want a value`},
		"asked for help": {[]string{"--help"}, 0, "Usage: speaker", ""},
	} {
		t.Run(name, func(t *testing.T) {
			var output, log bytes.Buffer
			code := program.Main(t.Context(), program.Invocation{
				Name: "speaker", Args: c.args, Lookup: func(string) (string, bool) { return "", false }, Output: &output, Log: &log,
			}, read, func(_ context.Context, s *chosen, log io.Writer) error {
				if s.word == "fail" {
					return errors.New("it failed")
				}
				_, err := io.WriteString(log, s.word)
				return err
			})
			require.Equal(t, c.code, code)
			require.Contains(t, output.String(), c.output)
			require.Contains(t, log.String(), c.log)
			require.Equal(t, c.log == "", log.Len() == 0)
		})
	}
}
