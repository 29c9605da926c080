package glob_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/glob"
)

// The library's version is Argo CD's: a later one says false here.
func TestGlobMatchesAsInArgoCD(t *testing.T) {
	t.Parallel()
	g, err := glob.Compile("prod*d")
	require.NoError(t, err)
	matches, ok := g.Match("prod")
	require.True(t, ok)
	require.True(t, matches)
}

func TestPatternThatMakesTheLibraryPanicMatchesNothing(t *testing.T) {
	t.Parallel()
	g, err := glob.Compile("a{")
	require.NoError(t, err)
	matches, ok := g.Match("a")
	require.False(t, ok)
	require.False(t, matches)
}

func TestPatternThatTakesExponentialTimeIsRefused(t *testing.T) {
	t.Parallel()
	for _, ok := range []string{strings.Repeat("a", 4096), strings.Repeat("?", 16), strings.Repeat("*", 20)} {
		_, err := glob.Compile(ok)
		require.NoError(t, err)
	}
	for _, tooMuch := range []string{strings.Repeat("a", 4097), strings.Repeat("[a]*", 9), strings.Repeat("{a,", 17), strings.Repeat("?", 17)} {
		_, err := glob.Compile(tooMuch)
		require.ErrorIs(t, err, glob.ErrTooComplex)
	}
	matches, ok := glob.Glob{}.Match("a")
	require.False(t, matches)
	require.True(t, ok)
}

func TestAnyOfSeveralPatterns(t *testing.T) {
	t.Parallel()
	for want, patterns := range map[string][]string{
		"a}":                    {"a}"}, // alone it is as it was
		"{a,{b-*}}":             {"a", "b-*"},
		`{{{a,b}},{[,}]},{\,}}`: {"{a,b}", "[,}]", `\,`},
	} {
		pattern, ok := glob.AnyOf(patterns)
		require.True(t, ok, want)
		require.Equal(t, want, pattern)
	}
	for _, other := range []string{"a}", "a,b", `a\`, "{a", "[a", "\x00"} {
		_, ok := glob.AnyOf([]string{"b", other})
		require.False(t, ok, other)
	}
	_, ok := glob.AnyOf(nil)
	require.False(t, ok)
}

// What a combination of two patterns matches is what one of them matches.
func FuzzAnyOf(f *testing.F) {
	for _, c := range [][3]string{{"a", "b-*", "b-x"}, {"{a,b}", "[,}]", ","}, {`a\`, "b", "b"}, {"a}", "b", "b"}, {"a,b", "c", "a"}, {"", "b", ""}, {"\x00", "b", "b"}, {"*0", "0", "0"}, {"a*", "a", "a"}} {
		f.Add(c[0], c[1], c[2])
	}
	f.Fuzz(func(t *testing.T, a, b, text string) {
		pattern, ok := glob.AnyOf([]string{a, b})
		if !ok || !utf8.ValidString(a+b+text) {
			return
		}
		one, errA := glob.Compile(a)
		other, errB := glob.Compile(b)
		both, err := glob.Compile(pattern)
		if errA != nil || errB != nil || err != nil || strings.Count(pattern, "*") > 3 || len(pattern)+len(text) > 60 { // which may take too long
			return
		}
		first, knowsFirst := one.Match(text)
		second, knowsSecond := other.Match(text)
		either, knows := both.Match(text)
		if knowsFirst && knowsSecond {
			require.True(t, knows, pattern)
			require.Equal(t, first || second, either, pattern)
		}
	})
}

func FuzzGlobDoesNotPanic(f *testing.F) {
	for _, pattern := range []string{"a{", "{a,b}*", "[!a-z]?", `\`, "{,}", "[a-", "**", "{*,**}ü[ü]", "?{", "{{"} {
		f.Add(pattern, "abc")
	}
	f.Fuzz(func(t *testing.T, pattern, text string) {
		g, err := glob.Compile(pattern)
		if err != nil {
			require.False(t, g.Compiled())
			return
		}
		if matches, ok := g.Match(text); matches {
			require.True(t, ok)
		}
	})
}
