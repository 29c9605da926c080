package glob_test

import (
	"strings"
	"testing"

	library "github.com/gobwas/glob"
	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/glob"
)

// forever are patterns with which the library would take days for the text.
func forever() (patterns []string, text string) {
	return []string{
		strings.Repeat("*a", 8) + "*b" + strings.Repeat("*a", 7), "*b" + strings.Repeat("*aa", 14) + "a",
		strings.Repeat("{a,aa,aaa,aaaa}", 16), strings.Repeat("{"+strings.Repeat("a,", 400)+"a}", 3) + "b", strings.Repeat("*?", 8) + "[X]",
		strings.Repeat("{,?}", 8) + "[X]", strings.Repeat("{,*}", 8) + "X", "{" + strings.Repeat("*{a*,*a}", 3) + ",[X]}{,b}",
	}, strings.Repeat("a", 4096)
}

func TestMatchThatTakesTooLongIsUndecided(t *testing.T) {
	t.Parallel()
	patterns, text := forever()
	undecided := 0
	for _, pattern := range patterns {
		g, err := glob.Compile(pattern)
		if err != nil {
			require.ErrorIs(t, err, glob.ErrTooComplex)
			continue
		}
		matches, ok := g.Match(text)
		require.False(t, matches && !ok)
		if !ok {
			undecided++
		}
	}
	require.GreaterOrEqual(t, undecided, 3)
}

func TestHonestPatternsAreDecided(t *testing.T) {
	t.Parallel()
	for pattern, text := range map[string]string{
		"https://{a,b}.*.*.example.com:6443":                    "https://a.b." + strings.Repeat("c", 63) + ".example.com:6443",
		"https://*.*.*.*.example.com":                           "https://a.b." + strings.Repeat("c", 63) + ".d.example.com",
		"*-team-*-prod-*":                                       "a-team-b-prod-" + strings.Repeat("c", 49),
		"*?agentName=edge-*":                                    "https://proxy:9090?agentName=edge-" + strings.Repeat("c", 63),
		"{" + strings.Repeat("some-namespace,", 200) + "other}": "other",
	} {
		g, err := glob.Compile(pattern)
		require.NoError(t, err)
		var budget glob.Budget
		matches, ok := budget.Match(g, text)
		require.True(t, ok, pattern)
		require.True(t, matches, pattern)
		require.Less(t, budget.Used(), 200_000, pattern)
	}
}

// However many patterns there are, and whatever they are, they take a budget together.
func TestBudgetIsForAllPatternsTogether(t *testing.T) {
	t.Parallel()
	var budget glob.Budget
	patterns, text := forever()
	hard, err := glob.Compile(patterns[0])
	require.NoError(t, err)
	for range 10_000 {
		budget.Match(hard, text)
	}
	require.True(t, budget.Spent())
	require.Less(t, budget.Used(), 10_000_000)
	easy, err := glob.Compile("a")
	require.NoError(t, err)
	_, ok := budget.Match(easy, "a")
	require.False(t, ok, "nothing is left")
	matches, ok := new(glob.Budget).Match(easy, "a")
	require.True(t, matches && ok, "another budget is not concerned")
}

func TestBoundedIsAboutTheWorstText(t *testing.T) {
	t.Parallel()
	for _, pattern := range []string{"*", "a-*", "*-a-*-b-*", "https://*.example.com/*/*", "{a,b}-{c,d}-*", strings.Repeat("a", 4096)} {
		require.NoError(t, glob.Bounded(pattern, 128), pattern)
	}
	for _, pattern := range []string{
		strings.Repeat("*a", 5), strings.Repeat("{a,b,c,d,e,f}", 10), "{*,{*,{*,*a}*}}*", strings.Repeat("a", 4097), strings.Repeat("[a]", 17),
	} {
		require.ErrorIs(t, glob.Bounded(pattern, 128), glob.ErrTooComplex, pattern)
	}
}

// What is matched within the budget is the library's verdict, and what is not is not said to match. The work is bounded, and with it
// the time: what is counted does not depend on how fast the machine is.
func FuzzMatchIsTheLibrarys(f *testing.F) {
	patterns, text := forever()
	for _, p := range append(patterns, "prod*d", "a{", "{a,b}*", "[!a-z]?", "{a*,a}", "{,}", "**", "{*,**}ü[ü]", "?{", "{{", "*[!ab]?*", "{a?,b?}{c,d}", "a*[b-d]e?*f", "{?a,?a}") {
		f.Add(p, "prod", text[:64])
	}
	f.Fuzz(func(t *testing.T, pattern, text, other string) {
		g, err := glob.Compile(pattern)
		if err != nil {
			require.False(t, g.Compiled())
			return
		}
		var budget glob.Budget
		for _, s := range []string{text, other} {
			matches, ok := budget.Match(g, s)
			require.LessOrEqual(t, budget.Used(), 8_000_000+(len(s)+64)*(len(s)+len(pattern)+64))
			if !ok {
				require.False(t, matches)
				continue
			}
			theirs, err := library.Compile(pattern)
			require.NoError(t, err)
			require.Equal(t, theirs.Match(s), matches)
		}
	})
}

func BenchmarkWorstMatches(b *testing.B) {
	patterns, text := forever()
	for _, p := range patterns {
		b.Run(p[:min(len(p), 20)], func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				g, err := glob.Compile(p)
				if err != nil {
					b.Skip(err)
				}
				var budget glob.Budget
				for range 100 {
					budget.Match(g, text)
				}
			}
		})
	}
}
