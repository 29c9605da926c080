// Package checks is how argocd-agentctl tells of things that it looked at, one by one: what is right, what is not and what to do about
// it, and what could not be looked at.
package checks

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Result is what became of a check.
type Result string

// Results.
const (
	OK      Result = "ok"
	Failed  Result = "failed"
	Skipped Result = "skipped"
)

// maxLine is how much of a text is shown.
const maxLine = 2000

// Check is one thing that was looked at.
type Check struct {
	Name string `json:"check"`
	// Agent is whom it is about, where checks of several agents are together.
	Agent  string `json:"agent,omitempty"`
	Result Result `json:"result"`
	// Detail is what was found, or why it could not be looked at.
	Detail string `json:"detail,omitempty"`
	// Problems are why it failed, each with the remedy.
	Problems []string `json:"problems,omitempty"`
	// MissingRights are those of the user's own for want of which it was not made.
	MissingRights []string `json:"missingRights,omitempty"`
}

// Of returns a check that failed if there are problems.
func Of(name, detail string, problems ...string) Check {
	c := Check{Name: name, Result: OK, Detail: line(detail)}
	for _, problem := range problems {
		c.Problems, c.Result = append(c.Problems, line(problem)), Failed
	}
	return c
}

// line returns a text as one line that a terminal may show: some of it may be what an agent says, or its cluster.
func line(text string) string {
	var shown strings.Builder
	for _, r := range strings.TrimSpace(text) {
		switch {
		case r == '\n':
			shown.WriteString("; ")
		case strconv.IsPrint(r) && r != utf8.RuneError:
			shown.WriteRune(r)
		default:
			quoted := strconv.QuoteRuneToASCII(r)
			shown.WriteString(quoted[1 : len(quoted)-1])
		}
		if shown.Len() > maxLine {
			return shown.String() + " ..."
		}
	}
	return shown.String()
}

// Err returns a check that failed if there is an error.
func Err(name, detail string, err error) Check {
	if err != nil {
		return Of(name, "", err.Error())
	}
	return Of(name, detail)
}

// Skip returns a check that was not made.
func Skip(name, why string) Check { return Check{Name: name, Result: Skipped, Detail: line(why)} }

// Forbidden returns a check that was not made because the user may not do on a cluster what it needs. The flag is that by which another context
// of the cluster is chosen.
func Forbidden(name, cluster, flag string, rights ...string) Check {
	c := Skip(name, fmt.Sprintf("you may not %s on %s: ask for that right, or choose a context that has it by %s", strings.Join(rights, ", nor "), cluster, flag))
	c.MissingRights = rights
	return c
}

// FirstForbidden returns the first check that was not made for want of rights, nil if there is none.
func FirstForbidden(all []Check) *Check {
	for i := range all {
		if len(all[i].MissingRights) > 0 {
			return &all[i]
		}
	}
	return nil
}

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
		fmt.Fprintf(out, "%s  %s", paint(c.Result), about(c.Agent)+c.Name)
		if c.Detail != "" {
			fmt.Fprintf(out, ": %s", c.Detail)
		}
		fmt.Fprintln(out)
		for _, problem := range c.Problems {
			fmt.Fprintf(out, "         %s\n", problem)
		}
	}
}

// about names an agent, if there is one.
func about(agent string) string {
	if agent == "" {
		return ""
	}
	return "agent " + agent + ": "
}
