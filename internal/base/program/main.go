package program

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/settings"
)

// Invocation is how a program was started.
type Invocation struct {
	// Name is what the program is called by people who start it, such as "principal".
	Name string
	Args []string
	// Lookup returns an environment variable, and whether it is set.
	Lookup func(variable string) (string, bool)
	// Output takes the help, Log all else.
	Output, Log io.Writer
}

// Settings are what an operator decides about a program.
type Settings interface {
	// Help returns what to tell people who ask for help.
	Help() string
}

// Main reads a program's settings and runs it to its end, and returns the exit code.
func Main[S Settings](ctx context.Context, i Invocation,
	read func(args []string, lookup func(string) (string, bool)) (S, error),
	run func(ctx context.Context, s S, log io.Writer) error,
) int {
	s, err := read(i.Args, i.Lookup)
	switch {
	case errors.Is(err, settings.ErrHelp):
		_, err = io.WriteString(i.Output, s.Help())
	case err == nil:
		err = run(ctx, s, i.Log)
	}
	if err != nil {
		fmt.Fprintf(i.Log, "%s: %v\n", i.Name, err)
		return 1
	}
	return 0
}
