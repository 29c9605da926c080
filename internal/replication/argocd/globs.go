package argocd

import (
	"errors"
	"fmt"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/glob"
)

// Lengths of what Argo CD on the hub matches with the patterns of a project. They bound what patterns are shown, and what is shown to
// be matched with them.
const (
	nameLength        = 63          // of namespaces and kinds, as Kubernetes has it (RFC 1123 label)
	applicationLength = LongestName // of Applications
	addressLength     = 256         // of repositories
)

// LongestName is how long the name of an object may be (RFC 1123 subdomain, as Kubernetes has it).
const LongestName = 253

// errTooMuchWork means that nobody can tell in time what a project permits.
var errTooMuchWork = errors.New("the project's spec: want fewer or simpler patterns: it takes too long to match all of them")

// globField is a list in a project's spec that has patterns: in these fields of its objects, or all of its texts if there are none.
type globField struct {
	list   string
	fields []string
	// shown is how long the texts may be with which Argo CD on the hub matches them, for as long as it takes, where it shows an
	// agent's project; 0 if the hub does not show these patterns.
	shown int
}

var globFields = []globField{ //nolint:gochecknoglobals // a constant
	{"destinations", []string{"name", "server"}, 0},
	{"destinations", []string{"namespace"}, nameLength},
	{"sourceRepos", nil, addressLength},
	{"clusterResourceWhitelist", []string{"group", "kind", "name"}, nameLength},
	{"clusterResourceBlacklist", []string{"group", "kind", "name"}, nameLength},
	{"namespaceResourceWhitelist", []string{"group", "kind", "name"}, nameLength},
	{"namespaceResourceBlacklist", []string{"group", "kind", "name"}, nameLength},
	{"destinationServiceAccounts", []string{"server"}, 0},
	{"destinationServiceAccounts", []string{"namespace"}, nameLength},
	{"syncWindows", []string{"clusters"}, 0},
	{"syncWindows", []string{"applications"}, applicationLength},
	{"syncWindows", []string{"namespaces"}, nameLength},
}

// checkShown returns an error if a pattern of a project of an agent's could take too long to match on the hub, or if it takes too long
// to read all of them. It goes by the very keys that are shown: decoded into a struct, one could hide another of the same letters.
func checkShown(spec map[string]any) error {
	work := 0
	for _, f := range globFields {
		for _, pattern := range f.texts(spec) {
			if work += glob.ReadingWork(pattern); work > glob.MaxReadingWork {
				return errTooMuchWork
			}
			if f.shown == 0 {
				continue
			}
			if err := glob.Bounded(pattern, f.shown); err != nil {
				return fmt.Errorf("the project's spec: %s: %w", f.list, err)
			}
		}
	}
	return nil
}

// texts returns the patterns of a field.
func (f globField) texts(spec map[string]any) []string {
	list, _ := spec[f.list].([]any)
	if f.fields == nil {
		return textsOf(list)
	}
	var out []string
	for _, item := range list {
		object, _ := item.(map[string]any)
		for _, field := range f.fields {
			several, _ := object[field].([]any)
			out = append(out, textsOf(append(several, object[field]))...)
		}
	}
	return out
}

// textsOf returns what is text in a list.
func textsOf(list []any) []string {
	var out []string
	for _, item := range list {
		if text, ok := item.(string); ok {
			out = append(out, text)
		}
	}
	return out
}
