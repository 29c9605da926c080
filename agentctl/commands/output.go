package commands

import (
	"encoding/json"
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

// format is how something is printed. It is the value of a flag.
type format string

const (
	asText format = "text"
	asJSON format = "json"
	asYAML format = "yaml"
)

// declare declares the flag.
func (f *format) declare(cmd *cobra.Command) {
	*f = asText
	cmd.Flags().VarP(f, "output", "o", "text, json or yaml")
}

// String returns the value.
func (f *format) String() string { return string(*f) }

// Set takes a value, if it is one.
func (f *format) Set(value string) error {
	*f = format(value)
	return settings.OneOf(string(asText), string(asJSON), string(asYAML))(value)
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
		var table strings.Builder
		aligned := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
		text(aligned)
		err = aligned.Flush()
		printed = []byte(table.String())
	}
	if err != nil {
		return fmt.Errorf("print: %w", err)
	}
	_, err = cmd.OutOrStdout().Write(printed)
	return err
}
