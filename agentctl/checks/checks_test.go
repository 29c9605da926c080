package checks_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/checks"
)

func plain(r checks.Result) string { return string(r) }

// What an agent says, or its cluster, is a part of many checks. It moves no cursor, and is no line of its own.
func TestWhatOthersSayMovesNoCursor(t *testing.T) {
	t.Parallel()
	lies := "v1\x1b[2J\nok  everything\u009b\xff\u202e" + strings.Repeat("x", 1<<20)
	for name, c := range map[string]checks.Check{
		"detail": checks.Of("hop", lies), "problem": checks.Of("hop", "", lies), "error": checks.Err("hop", "", errors.New(lies)), "skipped": checks.Skip("hop", lies),
	} {
		var out bytes.Buffer
		checks.Print(&out, []checks.Check{c}, plain)
		text := out.String()
		for _, bad := range []string{"\x1b", "\u009b", "\xff", "\u202e"} {
			require.NotContains(t, text, bad, name)
		}
		require.Contains(t, text, `v1\x1b[2J; ok  everything\u009b`, name)
		require.NotContains(t, text, "\nok", name)
		require.Less(t, len(text), 3000, name)
	}
}

func TestChecksAreCountedAndNamed(t *testing.T) {
	t.Parallel()
	all := []checks.Check{checks.Of("a", "fine"), checks.Skip("b", "away"), checks.Of("c", "", "wrong: mend it"), checks.Forbidden("d", "the hub", "--context", "list secrets", "get pods")}
	all[2].Agent = "berlin"
	require.Equal(t, 1, checks.Count(all))
	require.Equal(t, "d", checks.FirstForbidden(all).Name)
	require.Nil(t, checks.FirstForbidden(all[:3]))
	var out bytes.Buffer
	checks.Print(&out, all, plain)
	require.Equal(t, `ok  a: fine
skipped  b: away
failed  agent berlin: c
         wrong: mend it
skipped  d: you may not list secrets, nor get pods on the hub: ask for that right, or choose a context that has it by --context
`, out.String())
}
