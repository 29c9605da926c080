package charts_test

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

// The READMEs of the charts are made of the comments in their values.yaml.
func TestREADMEs(t *testing.T) {
	t.Parallel()
	for _, chart := range charts() {
		t.Run(chart, func(t *testing.T) {
			t.Parallel()
			var about struct {
				Description string `json:"description"`
			}
			text, err := os.ReadFile(folderOf(chart, "Chart.yaml"))
			require.NoError(t, err)
			require.NoError(t, yaml.Unmarshal(text, &about))
			compare(t, folderOf(chart, "README.md"), fmt.Sprintf(readme, chart, about.Description, table(t, chart)))
		})
	}
}

const readme = `# %s

%s

[Getting started](../../docs/getting-started.md) installs hub and spokes; [Upgrade](../../docs/upgrade.md) says what is supported. The folder
ci/ has values for other shapes, each of which is tested. This page is made of the comments in values.yaml.

| value | default | |
|---|---|---|
%s`

var (
	comment = regexp.MustCompile(`^ *# -- (.*)$`)
	key     = regexp.MustCompile(`^( *)([A-Za-z]+): *(.*)$`)
)

// table has a row for each value that a comment describes.
func table(t *testing.T, chart string) string {
	t.Helper()
	text, err := os.ReadFile(folderOf(chart, "values.yaml"))
	require.NoError(t, err)
	lines := strings.Split(string(text), "\n")
	var rows strings.Builder
	var path []string
	described := ""
	for _, line := range lines {
		if found := comment.FindStringSubmatch(line); found != nil {
			described = found[1]
			continue
		}
		found := key.FindStringSubmatch(line)
		if found == nil {
			continue
		}
		path = append(path[:len(found[1])/2], found[2])
		if described == "" {
			continue // it is only where others are, or a part of one that is described
		}
		value := found[3]
		if value == "" {
			value = "see values.yaml"
		} else {
			value = "`" + value + "`"
		}
		fmt.Fprintf(&rows, "| `%s` | %s | %s |\n", strings.Join(path, "."), value, described)
		described = ""
	}
	return rows.String()
}
