package figures

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// Report is all that a benchmark found.
type Report struct {
	Began        time.Time `json:"began"`
	Revision     string    `json:"revision"` // of the source that was built
	CPUs         int       `json:"cpus"`
	Applications int       `json:"applications"`
	Seconds      int       `json:"seconds"`   // that each loop took, where that was given
	Megabytes    int       `json:"megabytes"` // of a large body
	Requests     int       `json:"requests"`  // of redis-benchmark at its slowest
	Runs         int       `json:"runs"`      // figures are medians over them
	Rows         []Row     `json:"figures"`
	Failures     []string  `json:"failures,omitempty"` // parts that could not be measured, and why
}

// WriteJSON writes the report for machines.
func (r *Report) WriteJSON(out io.Writer) error {
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	return encoder.Encode(r)
}

// WriteTable writes the report for people. There is a column for whoever was measured.
func (r *Report) WriteTable(out io.Writer) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	third := slices.ContainsFunc(r.Rows, func(row Row) bool { return row.Twemproxy != nil })
	lines := []string{line(third, "PART", "FIGURE", "UNIT", "OURS", "FLOOR", "TWEMPROXY", "OURS/FLOOR", "TARGET", "")}
	for i, row := range r.Rows {
		part := row.Part
		if i > 0 && r.Rows[i-1].Part == part {
			part = ""
		} else {
			lines = append(lines, line(third, make([]string, 9)...))
		}
		lines = append(lines, line(third, part, row.Figure, row.Unit, number(row.Ours), number(row.Floor), number(row.Twemproxy),
			row.ratio(), row.Target, row.verdict()))
	}
	for _, line := range lines {
		if _, err := fmt.Fprintln(table, line); err != nil {
			return err
		}
	}
	if err := table.Flush(); err != nil {
		return err
	}
	for _, failure := range r.Failures {
		if _, err := fmt.Fprintln(out, "\nnot measured:", failure); err != nil {
			return err
		}
	}
	return nil
}

// line is a line of the table, with or without what is in twemproxy's column.
func line(third bool, cells ...string) string {
	const column = 5
	if !third {
		cells = slices.Delete(cells, column, column+1)
	}
	return strings.Join(cells, "\t")
}

func number(value *float64) string {
	if value == nil {
		return "-"
	}
	decimals := 0
	switch {
	case *value < 1:
		decimals = 3
	case *value < 10:
		decimals = 2
	case *value < 1000:
		decimals = 1
	}
	return strconv.FormatFloat(*value, 'f', decimals, 64)
}

func (r Row) ratio() string {
	if r.Ours == nil || r.Floor == nil || *r.Floor == 0 {
		return ""
	}
	return strconv.FormatFloat(*r.Ours / *r.Floor, 'f', 2, 64)
}

func (r Row) verdict() string {
	switch {
	case r.Met == nil:
		return ""
	case *r.Met:
		return "met"
	default:
		return "MISSED"
	}
}
