package hostile_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// lie is a row of the table in docs/security.md.
type lie struct {
	who     string // lies
	about   string // the facet, or what else crosses the wire
	sends   string // what the liar sends
	happens string // what happens then
	// try tells the lie and checks what happens. Where another package's test does that, it is nil, and by names that test, as
	// FOLDER.TestName.
	try func(*testing.T, *stage)
	by  string
}

// Liars.
const (
	principal = "principal"
	agent     = "agent"
	stranger  = "anyone"
)

// lies are all rows, in the order of the table.
func lies() []lie {
	var all []lie
	for _, some := range [][]lie{
		credentialLies(), projectLies(), applicationLies(),
		mirrorLies(), statusLies(), wireLies(), identityLies(), proxyLies(), enrollmentLies(), registrationLies(), identityLiesElsewhere(), peerLiesElsewhere(), liesElsewhere(),
	} {
		all = append(all, some...)
	}
	return all
}

// Where the table is, seen from this folder, and the lines around it.
const (
	page  = "../../docs/security.md"
	begin = "<!-- The table is made by the tests in e2e/hostile: run `make table-of-lies` after changing those. -->\n"
	end   = "<!-- End of the table. -->\n"
)

var update = flag.Bool("update", false, "write the table into docs/security.md") //nolint:gochecknoglobals // a flag

func TestTableOfLies(t *testing.T) {
	for _, l := range lies() {
		if l.try == nil {
			continue
		}
		t.Run(l.who+"/"+l.about+"/"+l.sends, func(t *testing.T) { l.try(t, played) })
	}
}

// The table has a row for each lie, and each row a test.
func TestTableIsThatOfTheDocs(t *testing.T) {
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	before, rest, ok := strings.Cut(string(text), begin)
	require.True(t, ok, "%s: %q is missing", page, begin)
	shown, after, ok := strings.Cut(rest, end)
	require.True(t, ok, "%s: %q is missing", page, end)
	table := table(lies())
	if *update {
		require.NoError(t, os.WriteFile(page, []byte(before+begin+table+end+after), 0o600))
		return
	}
	require.Equal(t, table, shown, "run `make table-of-lies`")
}

func TestEachRowHasItsTest(t *testing.T) {
	for _, l := range lies() {
		if l.try != nil {
			require.Empty(t, l.by, "%s: a row has one test", l.sends)
			continue
		}
		folder, name, ok := strings.Cut(l.by, ".")
		require.True(t, ok, "%s: want FOLDER.TestName, not %q", l.sends, l.by)
		require.True(t, hasTest(t, filepath.Join("../..", folder), name), "%s: there is no %s in %s", l.sends, name, folder)
	}
}

// hasTest reports whether a folder has a test of that name.
func hasTest(t *testing.T, folder, name string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*_test.go"))
	require.NoError(t, err)
	function := regexp.MustCompile(`(?m)^func ` + regexp.QuoteMeta(name) + `\(`)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		if function.Match(text) {
			return true
		}
	}
	return false
}

// table is how the rows look in the docs.
func table(rows []lie) string {
	var text strings.Builder
	text.WriteString("| who lies | about | what it sends | what happens | test |\n|---|---|---|---|---|\n")
	for _, l := range rows {
		by := "e2e/hostile"
		if l.try == nil {
			by = l.by
		}
		fmt.Fprintf(&text, "| %s | %s | %s | %s | `%s` |\n", l.who, l.about, l.sends, l.happens, by)
	}
	return text.String()
}
