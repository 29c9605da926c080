package commands_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// An operator searches the documents for the line that a program logs.
func TestLogLinesInDocumentsAreThoseOfThePrograms(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/troubleshooting.md")
	require.NoError(t, err)
	_, section, found := strings.Cut(string(page), "## What a log line says")
	require.True(t, found)
	var code strings.Builder
	require.NoError(t, filepath.WalkDir("../..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		code.Write(text)
		return err
	}))
	lines := 0
	for row := range strings.Lines(section) {
		cells := strings.Split(row, " | ")
		for _, quoted := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cells[0], -1) {
			require.Contains(t, code.String(), "\""+quoted[1], "no program logs this")
			lines++
		}
	}
	require.Greater(t, lines, 20)
}
