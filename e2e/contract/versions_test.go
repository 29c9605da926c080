package contract_test

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// required are the versions that a go.mod file asks for, and those that it has in their place.
func required(t *testing.T, file string) map[string]string {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	out := make(map[string]string)
	for line := range strings.Lines(string(text)) {
		line, _, _ = strings.Cut(line, "//")
		words := strings.Fields(strings.TrimPrefix(line, "replace "))
		switch {
		case len(words) == 2 && strings.HasPrefix(words[1], "v"):
			out[words[0]] = words[1]
		case len(words) == 4 && words[1] == "=>":
			out[words[0]] = words[3]
		}
	}
	return out
}

// The lab's Argo CD is the referee. With the same versions all of it is also compiled only once.
func TestVersionsAreThoseOfTheLab(t *testing.T) {
	lab := required(t, "../tools/argocd/go.mod")
	require.NotEmpty(t, lab["github.com/argoproj/argo-cd/v3"])
	for module, version := range required(t, "go.mod") {
		if other, ok := lab[module]; ok {
			require.Equal(t, other, version, "%s: set the same version in e2e/contract/go.mod and e2e/tools/argocd/go.mod", module)
		}
	}
}
