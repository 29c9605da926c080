package commands

import (
	"fmt"
	"io"
	"os"

	"golang.org/x/term"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/checks"
)

// Colours of a terminal (ECMA-48, 8.3.117).
const (
	red    = "31"
	green  = "32"
	yellow = "33"
)

// isTerminal reports whether somebody reads the output on a terminal.
func isTerminal(out io.Writer) bool {
	file, ok := out.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// painter returns what colours results on a terminal, and pads them.
func painter(out io.Writer) checks.Painter {
	coloured := isTerminal(out)
	return func(r checks.Result) string {
		text := fmt.Sprintf("%-7s", r)
		if !coloured {
			return text
		}
		colour := map[checks.Result]string{checks.OK: green, checks.Failed: red, checks.Skipped: yellow}[r]
		return "\x1b[" + colour + "m" + text + "\x1b[0m"
	}
}
