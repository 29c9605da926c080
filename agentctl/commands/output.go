package commands

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/cluster"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/settings"
)

// printLine prints a line.
func printLine(cmd *cobra.Command, format string, args ...any) error {
	_, err := fmt.Fprintf(cmd.OutOrStdout(), format+"\n", args...)
	return err
}

// resultPrinter returns a function that prints the result of a step, and warnings beside the output; or returns its error.
func resultPrinter(cmd *cobra.Command) func(r cluster.Result, err error) error {
	return func(r cluster.Result, err error) error {
		switch {
		case err != nil:
		case r.Outcome == cluster.Printed: // the Secret itself is in the output
			fmt.Fprintln(cmd.ErrOrStderr(), r)
		default:
			err = printLine(cmd, "%s", r)
		}
		if err != nil {
			return err
		}
		for _, note := range r.Notes {
			fmt.Fprintf(cmd.ErrOrStderr(), "warning: %s: %s\n", r.Where, note)
		}
		return nil
	}
}

// foundProblems is the error of a command that has shown problems, so that its exit code says so.
func foundProblems(err error, where string, n int) error {
	if err == nil && n > 0 {
		err = fmt.Errorf("%s: problems found: %d", where, n)
	}
	return err
}

// confirm has a person confirm what cannot be undone, by typing the answer, unless that was done by a flag.
func confirm(cmd *cobra.Command, forced bool, question, answer string) error {
	if forced {
		return nil
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "%s Type %s to go on: ", question, answer)
	said, err := bufio.NewReader(cmd.InOrStdin()).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("confirmation: %w", err)
	}
	if strings.TrimSpace(said) != answer {
		return fmt.Errorf("not confirmed, and nothing was done: answer %s, or give --%s", answer, forceFlag)
	}
	return nil
}

// format is how something is printed. It is the value of a flag.
type format string

const (
	asText format = "text"
	asWide format = "wide" // as text, with more columns where there are any
	asJSON format = "json"
	asYAML format = "yaml"
)

// declare declares the flag.
func (f *format) declare(cmd *cobra.Command) {
	*f = asText
	cmd.Flags().VarP(f, "output", "o", "text, json, yaml, or wide: text with more columns")
}

// String returns the value.
func (f *format) String() string { return string(*f) }

// Set takes a value, if it is one.
func (f *format) Set(value string) error {
	*f = format(value)
	return settings.OneOf(string(asText), string(asJSON), string(asYAML), string(asWide))(value)
}

// Type is what the help calls such a value.
func (*format) Type() string { return "format" }

// print prints something, as text by the function.
func (f *format) print(cmd *cobra.Command, what any, text func(io.Writer)) error {
	var printed []byte
	var err error
	switch *f {
	case asJSON:
		printed, err = json.MarshalIndent(what, "", "  ")
		printed = append(printed, '\n')
	case asYAML:
		printed, err = yaml.Marshal(what)
	default:
		var table string
		table, err = aligned(text)
		printed = []byte(table)
	}
	if err != nil {
		return fmt.Errorf("print: %w", err)
	}
	_, err = cmd.OutOrStdout().Write(printed)
	return err
}

// aligned returns a text with the cells of its lines, between tabs, below each other.
func aligned(text func(io.Writer)) (string, error) {
	var table strings.Builder
	cells := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	text(cells)
	err := cells.Flush()
	return table.String(), err
}
