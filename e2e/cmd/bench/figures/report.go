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
	Requests     int       `json:"requests"`  // of redis-benchmark with one connection
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
	var others []string
	if slices.ContainsFunc(r.Rows, func(row Row) bool { return row.Relay != nil }) {
		others = []string{Relay}
	}
	columns := slices.Concat([]string{"PART", "FIGURE", "UNIT", "OURS", "FLOOR"}, others, []string{"OURS/FLOOR", "TARGET", ""})
	lines := []string{strings.ToUpper(strings.Join(columns, "\t"))}
	for i, row := range r.Rows {
		part := row.Part
		if i > 0 && r.Rows[i-1].Part == part {
			part = ""
		} else {
			lines = append(lines, strings.Repeat("\t", len(columns)-1))
		}
		cells := []string{part, row.Figure, row.Unit, number(row.Ours), number(row.Floor)}
		for _, contender := range others {
			cells = append(cells, number(row.of(contender)))
		}
		lines = append(lines, strings.Join(append(cells, row.ratio(), row.Target, row.targetMet()), "\t"))
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

func (r Row) targetMet() string {
	switch {
	case r.Met == nil:
		return ""
	case *r.Met:
		return "met"
	default:
		return "MISSED"
	}
}
