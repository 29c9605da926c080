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
type speaker struct{ word, other string }

func (s *speaker) Declare(set *settings.Set) {
	set.Own("SPEAKER_")
	set.String(&s.other, "other", "SPEAKER_WORD", "", "what to say next")
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
		environment []string
		code        int
		output, log string
	}{
		"without flags":     {nil, nil, 0, "", "from the environment"},
		"with a flag":       {[]string{"--word=hello"}, nil, 0, "", "hello"},
		"that fails":        {[]string{"--word=fail"}, nil, 1, "", "error: it failed\n"},
		"with a bad value":  {[]string{"--word="}, nil, 1, "", `error: --word or WORD: "" (by flag): want a value`},
		"with an argument":  {[]string{"word"}, nil, 1, "", `error: speaker takes no argument, and "word" is one: see speaker --help`},
		"with unknown flag": {[]string{"--wrod=hello"}, nil, 1, "", "error: unknown flag: --wrod: did you mean --word? See speaker --help\n"},
		"with unknown flag and variable": {
			[]string{"--nothing-like-it", "--wrod", "hello"}, []string{"SPEAKER_WRD=hello"}, 1, "",
			"error: unknown flag: --nothing-like-it: see speaker --help\nunknown flag: --wrod: did you mean --word? See speaker --help\nSPEAKER_WRD: no setting has this environment variable: did you mean SPEAKER_WORD?\n",
		},
		"for its version": {[]string{"--version", "--word="}, nil, 0, "speaker " + version.Version() + " (" + version.Revision() + ")\n", ""},
		"for help":        {[]string{"--help"}, nil, 0, "what to say [WORD] (default \"nothing\")", ""},
	} {
		t.Run(name, func(t *testing.T) {
			var output, log bytes.Buffer
			cmd := program.New("speaker", "Says a word", append(c.environment, "WORD=from the environment"), &speaker{}, speak)
			cmd.SetOut(&output)
			cmd.SetErr(&log)
			require.Equal(t, c.code, program.Main(t.Context(), cmd, c.args))
			require.Contains(t, output.String(), c.output)
			require.Contains(t, log.String(), c.log)
			require.Equal(t, c.log == "", log.Len() == 0)
		})
	}
}
