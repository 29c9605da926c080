// Package glob matches the globs of Argo CD's projects and lists of namespaces. It uses the library that Argo CD uses, in the same
// version, since others read some patterns differently. Patterns may come from an agent, so it stands before what that library
// does with some: it panics, or takes exponential time.
package glob

import (
	"errors"
	"fmt"
	"strings"

	"github.com/gobwas/glob/compiler"
	"github.com/gobwas/glob/syntax"
)

// Limits of a pattern. Those of names and addresses do not come close.
const (
	maxLength    = 4096
	maxWildcards = 16
)

// ErrTooComplex means that it would take too long to match a pattern. What has one has to be refused: it may be a denial.
var ErrTooComplex = fmt.Errorf("want a glob of at most %d bytes and %d wildcards", maxLength, maxWildcards)

var errPanic = errors.New("it is no glob")

// Glob is a pattern. The zero value matches nothing.
type Glob struct{ compiled *counted }

// Compile reads a pattern.
func Compile(text string) (g Glob, err error) {
	if len(text) > maxLength || wildcards(text) > maxWildcards {
		return Glob{}, ErrTooComplex
	}
	defer func() {
		if recover() != nil {
			g, err = Glob{}, errPanic
		}
	}()
	tree, err := syntax.Parse(text)
	if err != nil {
		return Glob{}, err
	}
	matcher, err := compiler.Compile(tree, nil)
	if err != nil {
		return Glob{}, err
	}
	return Glob{count(matcher)}, nil
}

// wildcards counts what may match several texts. Two stars in a row are one.
func wildcards(text string) int {
	n := stars(text)
	for _, c := range "?[{" {
		n += strings.Count(text, string(c))
	}
	return n
}

// stars counts what may match texts of any length.
func stars(text string) int { return strings.Count(text, "*") - strings.Count(text, "**") }

// Compiled reports whether the glob was read without an error.
func (g Glob) Compiled() bool { return g.compiled != nil }

// Match reports whether a text matches. ok is false where the library panics, or would take too long: then nobody can tell. It
// takes some milliseconds at most. Where somebody else says how many patterns there are, see [Budget].
func (g Glob) Match(text string) (matches, ok bool) { return new(Budget).Match(g, text) }

// Beginning returns how every text begins that a pattern matches: the whole pattern if nothing in it has a meaning.
func Beginning(pattern string) string {
	if end := strings.IndexAny(pattern, special); end >= 0 {
		return pattern[:end]
	}
	return pattern
}

// AnyOf returns the pattern that matches what at least one of some patterns matches. ok is false if there is none, since one of
// them would mean something else between braces.
func AnyOf(patterns []string) (pattern string, ok bool) {
	if len(patterns) == 1 {
		return patterns[0], true
	}
	alternatives := make([]string, 0, len(patterns))
	for _, p := range patterns {
		if !fitsBraces(p) {
			return "", false
		}
		if strings.ContainsAny(p, special) {
			p = "{" + p + "}" // the library gets alternatives wrong that share their beginning or end, as in {a*,a}
		}
		alternatives = append(alternatives, p)
	}
	return "{" + strings.Join(alternatives, ",") + "}", len(patterns) > 0
}

// special are the characters that have a meaning in a pattern.
const special = `*?[{\`

// fitsBraces reports whether a pattern means the same between braces: it closes what it opens, has no comma outside braces, and
// no zero byte, where the library stops reading.
func fitsBraces(pattern string) bool {
	depth, class, escaped := 0, false, false
	for _, c := range pattern {
		switch {
		case c == 0:
			return false
		case escaped:
			escaped = false
		case c == '\\':
			escaped = true
		case class:
			class = c != ']'
		case c == '[':
			class = true
		case c == '{':
			depth++
		case depth == 0 && (c == ',' || c == '}'):
			return false
		case c == '}':
			depth--
		}
	}
	return depth == 0 && !class && !escaped
}
