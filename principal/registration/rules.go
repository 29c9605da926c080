package registration

import (
	"fmt"
	"maps"
	"slices"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/argocd"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/glob"
)

// Rules say which labels and annotations of its cluster an agent may choose. The zero value is none: an ApplicationSet deploys by them.
type Rules struct{ labels, annotations []glob.Glob }

// NewRules returns rules by which those count whose keys match one of these globs.
func NewRules(labels, annotations []string) (Rules, error) {
	var r Rules
	for _, side := range []struct {
		texts []string
		into  *[]glob.Glob
	}{{labels, &r.labels}, {annotations, &r.annotations}} {
		for _, text := range side.texts {
			g, err := glob.Compile(text)
			if err != nil {
				return Rules{}, fmt.Errorf("%q: want globs of keys, such as team or example.com/*: %w", text, err)
			}
			*side.into = append(*side.into, g)
		}
	}
	return r, nil
}

// filter returns those of an agent's keys that count, and for each other why it does not, sorted.
func (r Rules) filter(said argocd.ClusterKeys) (allowed argocd.ClusterKeys, leftOut []string) {
	var more []string
	allowed.Labels, leftOut = choose("label", said.Labels, r.labels, argocd.CheckAgentLabel, "--self-registration-allowed-labels")
	allowed.Annotations, more = choose("annotation", said.Annotations, r.annotations, argocd.CheckAgentAnnotation, "--self-registration-allowed-annotations")
	return allowed, append(leftOut, more...)
}

// choose is filter for labels or annotations.
func choose(what string, said map[string]string, globs []glob.Glob, check func(key, value string) error, setting string,
) (allowed map[string]string, leftOut []string) {
	allowed = make(map[string]string)
	for _, key := range slices.Sorted(maps.Keys(said)) {
		err := check(key, said[key])
		switch {
		case err != nil:
			leftOut = append(leftOut, what+" "+err.Error())
		case !matchesAny(globs, key):
			leftOut = append(leftOut, fmt.Sprintf("%s %s: allow it by %s, or set it by: argocd-agentctl agent token create --%s", what, key, setting, what))
		case len(allowed) >= argocd.MaxClusterKeys:
			leftOut = append(leftOut, fmt.Sprintf("%s %s: an agent may set %d at most", what, key, argocd.MaxClusterKeys))
		default:
			allowed[key] = said[key]
		}
	}
	return allowed, leftOut
}

func matchesAny(globs []glob.Glob, key string) bool {
	return slices.ContainsFunc(globs, func(g glob.Glob) bool {
		matches, known := g.Match(key)
		return matches && known
	})
}
