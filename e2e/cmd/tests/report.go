package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// event is a line of `go test -json`, as `go doc test2json` describes it.
type event struct {
	Action, Package, Test, Output string
}

// report makes of events what `go test` prints without -json, and remembers what was skipped and what has failed.
type report struct {
	to              io.Writer
	said            map[string]map[string][]string // what tests that are not over have said, by package and test; the package itself is ""
	skipped, failed []string
}

func newReport(to io.Writer) *report {
	return &report{to: to, said: make(map[string]map[string][]string)}
}

// read reads events until there are no more.
func (r *report) read(from io.Reader) error {
	lines := bufio.NewReader(from)
	for {
		line, err := lines.ReadBytes('\n')
		var e event
		switch {
		case len(line) == 0:
		case json.Unmarshal(line, &e) != nil:
			r.print(string(line))
		default:
			r.take(e)
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// take takes what happened next.
func (r *report) take(e event) {
	switch e.Action {
	case "build-output":
		r.print(e.Output)
	case "output":
		if r.said[e.Package] == nil {
			r.said[e.Package] = make(map[string][]string)
		}
		r.said[e.Package][e.Test] = append(r.said[e.Package][e.Test], e.Output)
	case "pass", "fail", "skip":
		if e.Test != "" {
			r.endTest(e)
		} else {
			r.endPackage(e)
		}
	}
}

func (r *report) endTest(e event) {
	lines := r.said[e.Package][e.Test]
	delete(r.said[e.Package], e.Test)
	switch e.Action {
	case "fail":
		r.failed = append(r.failed, e.Package+" "+e.Test)
		r.printTest(lines)
	case "skip":
		r.skipped = append(r.skipped, fmt.Sprintf("%s %s: %s", e.Package, e.Test, reason(lines)))
	}
}

// endPackage prints what a package that has failed has said, those of its tests too that did not come to their end. Of others it prints
// the last line, unless that says that there are no tests.
func (r *report) endPackage(e event) {
	said := r.said[e.Package]
	delete(r.said, e.Package)
	lines := said[""]
	delete(said, "")
	switch e.Action {
	case "fail":
		if !slices.ContainsFunc(r.failed, func(test string) bool { return strings.HasPrefix(test, e.Package+" ") }) {
			r.failed = append(r.failed, e.Package)
		}
		for _, test := range slices.Sorted(maps.Keys(said)) {
			r.print("--- not over: " + test + "\n")
			r.printTest(said[test])
		}
		r.print(lines...)
	case "pass":
		for _, line := range lines {
			if strings.HasPrefix(line, "ok  \t") {
				r.print(line)
			}
			if why, ok := strings.CutPrefix(line, "SKIP: "); ok {
				r.skipped = append(r.skipped, e.Package+": "+strings.TrimSpace(why))
			}
		}
	}
}

// printTest prints what a test has said, after the line with its name and its result.
func (r *report) printTest(lines []string) {
	var result, rest []string
	for _, line := range lines {
		switch {
		case strings.HasPrefix(line, "--- "):
			result = append(result, line)
		case !strings.HasPrefix(line, "=== "):
			rest = append(rest, line)
		}
	}
	r.print(append(result, rest...)...)
}

func (r *report) print(lines ...string) {
	for _, line := range lines {
		// Who reads this is not there any more if it cannot be written.
		_, _ = io.WriteString(r.to, line)
	}
}

// position is where in its source a test says something.
var position = regexp.MustCompile(`^\s+\S+\.go:\d+: `)

// reason is what a test that was skipped said last.
func reason(lines []string) string {
	var words []string
	for _, line := range lines {
		if at := position.FindString(line); at != "" {
			words = []string{strings.TrimSpace(line[len(at):])}
		} else if len(words) > 0 && !strings.HasPrefix(line, "--- ") {
			words = append(words, strings.TrimSpace(line))
		}
	}
	if len(words) == 0 {
		return "it does not say why"
	}
	return strings.Join(words, " ")
}

// sum says what was skipped and what has failed.
func (r *report) sum() {
	for _, list := range []struct {
		what string
		of   []string
	}{{"skipped", r.skipped}, {"failed", r.failed}} {
		if len(list.of) == 0 {
			r.print("\nnothing " + list.what + "\n")
			continue
		}
		r.print(fmt.Sprintf("\n%d %s:\n", len(list.of), list.what))
		for _, one := range list.of {
			r.print("  " + one + "\n")
		}
	}
}
