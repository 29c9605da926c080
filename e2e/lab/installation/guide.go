package installation

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// Guide is a page of the docs: its commands, as they are written there, but for what lies outside of this machine.
type Guide struct {
	*Reader

	page  string
	text  string
	steps []*step
}

// step is a block of commands. Blocks in a language, such as ```yaml, are to be looked at.
type step struct {
	commands string
	read     bool // whether it was run
}

// Guide opens a page, a file of the folder docs.
func (r *Reader) Guide(page string) (*Guide, error) {
	text, err := os.ReadFile(filepath.Join(r.docs, page))
	if err != nil {
		return nil, err
	}
	g := &Guide{Reader: r, page: page, text: string(text)}
	for _, block := range blocks(g.text) {
		commands := r.here.Replace(block)
		if left := world.FindString(commands); left != "" {
			return nil, fmt.Errorf("%s has %q, which the lab replaces by nothing: %s", page, left, commands)
		}
		g.steps = append(g.steps, &step{commands: commands})
	}
	return g, nil
}

// world is an address that no machine of the lab reaches.
var world = regexp.MustCompile(`https://\S+|oci://\S+`)

// blocks are those of commands, without the indent that they have as a part of a list.
func blocks(page string) []string {
	const fence = "```"
	var all []string
	var block strings.Builder
	inside, skipped, indent := false, false, ""
	for line := range strings.Lines(page) {
		before, language, marks := strings.Cut(strings.TrimRight(line, "\n"), fence)
		switch {
		case marks && strings.TrimSpace(before) == "" && !inside:
			inside, skipped, indent = true, language != "", before
			block.Reset()
		case marks && strings.TrimSpace(before) == "":
			inside = false
			if !skipped {
				all = append(all, block.String())
			}
		case inside:
			block.WriteString(strings.TrimPrefix(line, indent))
		}
	}
	return all
}

// Run runs the first block of commands that has a text, with some others replaced, in pairs, and returns what it prints.
func (g *Guide) Run(ctx context.Context, with string, replacements ...string) (string, error) {
	for _, s := range g.steps {
		if strings.Contains(s.commands, with) {
			s.read = true
			return g.Shell.Run(ctx, strings.NewReplacer(replacements...).Replace(s.commands))
		}
	}
	return "", fmt.Errorf("%s has no commands with %q", g.page, with)
}

// Unread are the blocks of commands that were not run yet.
func (g *Guide) Unread() []string {
	var unread []string
	for _, s := range g.steps {
		if !s.read {
			unread = append(unread, s.commands)
		}
	}
	return unread
}

// Rows are those of the first table below a heading, cell by cell.
func (g *Guide) Rows(heading string) ([][]string, error) {
	_, below, found := strings.Cut(g.text, "\n## "+heading+"\n")
	if !found {
		return nil, fmt.Errorf("%s has no heading %q", g.page, heading)
	}
	_, table, found := strings.Cut(below, "\n|---|")
	if !found {
		return nil, fmt.Errorf("%s has no table below %q", g.page, heading)
	}
	_, table, _ = strings.Cut(table, "\n")
	var rows [][]string
	for line := range strings.Lines(table) {
		cells, is := strings.CutPrefix(line, "| ")
		if !is {
			break
		}
		rows = append(rows, strings.Split(strings.TrimSuffix(strings.TrimSpace(cells), " |"), " | "))
	}
	return rows, nil
}
