package certificate

import "strings"

// List writes names for a sentence.
func List(names []string) string {
	if len(names) == 0 {
		return "nothing"
	}
	return strings.Join(names, ", ")
}
