package glob

import (
	"fmt"
	"math"
	"strings"
	"sync"

	"github.com/gobwas/glob/match"
)

// Budget bounds the work of matching many patterns, such as all of a project's. The zero value is a whole budget. It is used by one
// goroutine.
type Budget struct{ used int }

// Work is counted in steps of about a nanosecond: stepsPerCall for each call of one of the library's matchers, and one for each byte
// that it may look at. With both limits it is some milliseconds: a name is told in a microsecond, and an address with three
// stars in some ten.
const (
	maxWork      = 2_000_000 // for one match
	maxTotal     = 8_000_000 // for all matches of a budget
	stepsPerCall = 32
)

// maxPlaces is in how many ways a pattern that others match may have to be tried, at most.
const maxPlaces = 20_000_000

// MaxReadingWork is how many steps it may take to compile all patterns of a project: some ten milliseconds.
const MaxReadingWork = 50_000_000

// ReadingWork returns how many steps it takes to compile a pattern, at most.
func ReadingWork(pattern string) int {
	switch {
	case strings.Contains(pattern, "{"): // alternatives are compared with each other
		return 1000 + 600*len(pattern)
	case strings.ContainsAny(pattern, special):
		return 1000 + 50*len(pattern)
	}
	return 500 + len(pattern)
}

// Match reports whether a text matches. ok is false where the library panics, where it would take too long, and once the budget is
// spent: then nobody can tell.
func (b *Budget) Match(g Glob, text string) (matches, ok bool) {
	if g.compiled == nil {
		return false, true
	}
	matches, ok, used := g.compiled.match(text, min(maxWork, maxTotal-b.used))
	b.used += used
	return matches, ok
}

// Spent reports whether there was more to match than the budget allows.
func (b *Budget) Spent() bool { return b.used > maxTotal }

// Bounded returns an error if it could take too long to match a pattern with a text of so many bytes, whatever text that is. It is
// for patterns that others match without a budget, and allows ten times as much. The library tries each star at each place in the text
// after those before it, and each alternative in braces after each before, so that the time grows with a power of the length.
func Bounded(pattern string, length int) error {
	switch {
	case len(pattern) > maxLength || wildcards(pattern) > maxWildcards:
		return fmt.Errorf("%.100q: %w", pattern, ErrTooComplex)
	case choices(pattern)*places(length, stars(pattern)) > maxPlaces:
		return fmt.Errorf("%.100q: %w that takes no longer to match: with fewer stars or alternatives", pattern, ErrTooComplex)
	}
	return nil
}

// places returns in how many ways so many stars may be put into a text, at most.
func places(length, stars int) float64 {
	n := 1.0
	for i := range stars {
		n *= float64(max(length-i, 1)) / float64(i+1)
	}
	return math.Max(n, 1)
}

// choices returns in how many ways one may choose among the alternatives in braces, at most.
func choices(text string) float64 {
	braces, n := strings.Count(text, "{"), 1.0
	for range braces {
		n *= float64(strings.Count(text, ",")+2*braces-1) / float64(braces)
	}
	return math.Max(n, 1)
}

// counted is a compiled pattern whose matchers count their work.
type counted struct {
	mu      sync.Mutex
	matcher match.Matcher // all that is in it counts in left
	left    int           // guarded by mu
}

// errSpent is panicked with, through the library, when no work is left.
type errSpent struct{}

// count returns a compiled pattern whose matchers count. They do what they did.
func count(matcher match.Matcher) *counted {
	c := &counted{}
	c.matcher = c.wrap(matcher)
	return c
}

// match matches a text, and returns how much work it was.
func (c *counted) match(text string, limit int) (matches, ok bool, used int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.left = limit
	defer func() {
		used = limit - c.left
		if recover() != nil {
			matches, ok = false, false
		}
	}()
	return c.matcher.Match(text), true, 0
}

func (c *counted) spend(steps int) {
	if c.left -= steps; c.left < 0 {
		panic(errSpent{}) //nolint:forbidigo // the library's matchers return no errors; match recovers
	}
}

// wrap lets a matcher, and those that it consists of, count.
func (c *counted) wrap(m match.Matcher) match.Matcher {
	w := &counting{Matcher: m, of: c, perMatch: 1, perIndex: 4} // an index is a list of places
	switch m := m.(type) {
	case nil:
		return nil
	case match.BTree:
		m.Value, m.Left, m.Right = c.wrap(m.Value), c.wrap(m.Left), c.wrap(m.Right)
		w.Matcher, w.perMatch = m, 0
	case match.AnyOf:
		m.Matchers = c.wrapAll(m.Matchers)
		w.Matcher, w.perMatch = m, 0
	case match.EveryOf:
		m.Matchers = c.wrapAll(m.Matchers)
		w.Matcher, w.squares = m, true
	case match.Row:
		m.Matchers = c.wrapAll(m.Matchers)
		w.Matcher = m
	case match.List:
		w.perMatch, w.perIndex = len(m.List), 4*len(m.List)
	case match.Text, match.Prefix, match.Suffix, match.PrefixSuffix, match.Super, match.Nothing, match.Single, match.Range:
		w.perMatch = 0
	}
	return w
}

func (c *counted) wrapAll(matchers match.Matchers) match.Matchers {
	all := make(match.Matchers, len(matchers))
	for i, m := range matchers {
		all[i] = c.wrap(m)
	}
	return all
}

// counting is one of the library's matchers, and counts.
type counting struct {
	match.Matcher

	of                 *counted
	perMatch, perIndex int  // steps for each byte of the text
	squares            bool // an index takes the square of its length
}

// Match implements [match.Matcher].
func (w *counting) Match(text string) bool {
	w.of.spend(stepsPerCall + w.perMatch*len(text))
	return w.Matcher.Match(text)
}

// Index implements [match.Matcher].
func (w *counting) Index(text string) (int, []int) {
	steps := stepsPerCall + w.perIndex*len(text)
	if w.squares {
		steps += len(text) * len(text)
	}
	w.of.spend(steps)
	return w.Matcher.Index(text)
}
