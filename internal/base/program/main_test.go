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
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/version"
)

// speaker are the settings of a program that says a word.
type speaker struct{ word string }

func (s *speaker) Declare(set *settings.Set) {
	set.String(&s.word, "word", "WORD", "nothing", "what to say", settings.NonEmpty)
}

func speak(_ context.Context, s *speaker, log io.Writer) error {
	if s.word == "fail" {
		return errors.New("it failed")
	}
	_, err := io.WriteString(log, s.word)
	return err
}

func TestMainRunsACommand(t *testing.T) {
	for name, c := range map[string]struct {
		args        []string
		code        int
		output, log string
	}{
		"without flags":     {nil, 0, "", "from the environment"},
		"with a flag":       {[]string{"--word=hello"}, 0, "", "hello"},
		"that fails":        {[]string{"--word=fail"}, 1, "", "error: it failed\n"},
		"with a bad value":  {[]string{"--word="}, 1, "", `error: --word or WORD: "" (by flag): want a value`},
		"with an argument":  {[]string{"word"}, 1, "", `error: speaker takes no argument, and "word" is one: see speaker --help`},
		"with unknown flag": {[]string{"--wrod=hello"}, 1, "", "error: unknown flag: --wrod: see speaker --help\n"},
		"for its version":   {[]string{"--version", "--word="}, 0, "speaker " + version.Version() + " (" + version.Revision() + ")\n", ""},
		"for help":          {[]string{"--help"}, 0, "what to say [WORD] (default \"nothing\")", ""},
	} {
		t.Run(name, func(t *testing.T) {
			var output, log bytes.Buffer
			cmd := program.New("speaker", "Says a word", func(name string) (string, bool) {
				return "from the environment", name == "WORD"
			}, &speaker{}, speak)
			cmd.SetArgs(append([]string{}, c.args...))
			cmd.SetOut(&output)
			cmd.SetErr(&log)
			require.Equal(t, c.code, program.Main(t.Context(), cmd))
			require.Contains(t, output.String(), c.output)
			require.Contains(t, log.String(), c.log)
			require.Equal(t, c.log == "", log.Len() == 0)
		})
	}
}
