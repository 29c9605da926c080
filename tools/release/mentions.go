package main

import (
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"strings"
)

// How people are told to get an image, with its tag, and a chart, with its version: in the same command, which may have several lines.
var (
	imagePattern = regexp.MustCompile(regexp.QuoteMeta(repository) + `/[a-z-]+:([\w.-]*\w)`)
	chartPattern = regexp.MustCompile(regexp.QuoteMeta(repository) + "/charts/[a-z-]+(?:[^\n`]|\\\\\n)*?" + ` --version[ =]([\w.-]*\w)`)
)

// mentions fails if what people copy from names images or charts of another version: they would have the programs of two releases. Charts say
// theirs in Chart.yaml.
func (r release) mentions() error {
	var wrong []string
	files := os.DirFS(r.root)
	for _, place := range []string{"README.md", "docs", "deploy"} {
		err := fs.WalkDir(files, place, func(name string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			text, err := fs.ReadFile(files, name)
			wrong = append(wrong, r.othersIn(name, string(text))...)
			return err
		})
		if err != nil {
			return err
		}
	}
	if len(wrong) > 0 {
		return fmt.Errorf("%s is released, and other versions are named:\n%s", r.version, strings.Join(wrong, "\n"))
	}
	return nil
}

// othersIn returns where a file names another version.
func (r release) othersIn(name, text string) (wrong []string) {
	for _, of := range []struct {
		pattern *regexp.Regexp
		want    string
	}{{imagePattern, r.version}, {chartPattern, strings.TrimPrefix(r.version, "v")}} {
		for _, at := range of.pattern.FindAllStringSubmatchIndex(text, -1) {
			if has := text[at[2]:at[3]]; has != of.want {
				line := 1 + strings.Count(text[:at[2]], "\n")
				wrong = append(wrong, fmt.Sprintf("%s:%d: %s: want %s", name, line, has, of.want))
			}
		}
	}
	return wrong
}
