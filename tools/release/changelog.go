package main

import (
	"bytes"
	"fmt"
	"os"
	"strings"
)

// changes returns what a changelog says of a version: the lines below its heading, as https://keepachangelog.com has it, such as
// "## [0.1.0] - 2026-11-24".
func changes(file, version string) ([]byte, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	heading := "## [" + strings.TrimPrefix(version, "v") + "]"
	var section bytes.Buffer
	within := false
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "## ") {
			within = strings.HasPrefix(line, heading)
			continue
		}
		if within {
			section.WriteString(line)
		}
	}
	notes := bytes.TrimSpace(section.Bytes())
	if len(notes) == 0 {
		return nil, fmt.Errorf("%s says nothing of %s: write a section %q that says what is new", file, version, heading+" - DATE")
	}
	return append(notes, '\n'), nil
}
