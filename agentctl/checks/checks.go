// Package checks is how argocd-agentctl tells of things that it looked at, one by one: what is right, what is not and what to do about
// it, and what could not be looked at.
package checks

import (
	"fmt"
	"io"
)

// Result is what became of a check.
type Result string

// Results.
const (
	OK      Result = "ok"
	Failed  Result = "failed"
	Skipped Result = "skipped"
)

// Check is one thing that was looked at.
type Check struct {
	Name   string `json:"check"`
	Result Result `json:"result"`
	// Detail is what was found, or why it could not be looked at.
	Detail string `json:"detail,omitempty"`
	// Problems are why it failed, each with the remedy.
	Problems []string `json:"problems,omitempty"`
}

// Of returns a check that failed if there are problems.
func Of(name, detail string, problems ...string) Check {
	c := Check{Name: name, Result: OK, Detail: detail, Problems: problems}
	if len(problems) > 0 {
		c.Result = Failed
	}
	return c
}

// Err returns a check that failed if there is an error.
func Err(name, detail string, err error) Check {
	if err != nil {
		return Of(name, "", err.Error())
	}
	return Of(name, detail)
}

// Skip returns a check that was not made.
func Skip(name, why string) Check { return Check{Name: name, Result: Skipped, Detail: why} }

// Count returns how many failed.
func Count(all []Check) int {
	n := 0
	for _, c := range all {
		if c.Result == Failed {
			n++
		}
	}
	return n
}

// Painter colours a result, if its reader sees colours.
type Painter func(Result) string

// Print prints checks, one on a line, and below it why it failed.
func Print(out io.Writer, all []Check, paint Painter) {
	for _, c := range all {
		fmt.Fprintf(out, "%s  %s", paint(c.Result), c.Name)
		if c.Detail != "" {
			fmt.Fprintf(out, ": %s", c.Detail)
		}
		fmt.Fprintln(out)
		for _, problem := range c.Problems {
			fmt.Fprintf(out, "         %s\n", problem)
		}
	}
}
