package argocd

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/converge"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/glob"
)

// MirrorRules say what the hub shows of what autonomous agents have, besides what it always shows. The zero value is nothing
// more: labels and annotations steer programs on the hub, and roles hand out rights there, by what an agent says.
type MirrorRules struct {
	texts               mirrorTexts
	labels, annotations []glob.Glob
}

// mirrorTexts are the rules as operators write them.
type mirrorTexts struct {
	Labels      []string `json:"labels,omitempty"`
	Annotations []string `json:"annotations,omitempty"`
	Roles       bool     `json:"roles,omitempty"`
}

// NewMirrorRules returns rules by which labels and annotations are shown whose keys match one of these globs, and, if roles is
// set, the roles of projects.
func NewMirrorRules(labels, annotations []string, roles bool) (MirrorRules, error) {
	r := MirrorRules{texts: mirrorTexts{labels, annotations, roles}}
	for _, keys := range []struct {
		texts []string
		globs *[]glob.Glob
	}{{labels, &r.labels}, {annotations, &r.annotations}} {
		for _, text := range keys.texts {
			g, err := glob.Compile(text)
			if err != nil {
				return MirrorRules{}, fmt.Errorf("%q: %w", text, err)
			}
			*keys.globs = append(*keys.globs, g)
		}
	}
	return r, nil
}

// CheckKeys reports what is wrong with globs of labels or annotations.
func CheckKeys(globs []string) error {
	if _, err := NewMirrorRules(globs, nil, false); err != nil {
		return fmt.Errorf("want globs of keys, such as team or example.com/*: %w", err)
	}
	return nil
}

// ID is the same for the same rules. What was shown by others is shown anew.
func (r MirrorRules) ID() string {
	text, err := json.Marshal(r.texts)
	if err != nil {
		return ""
	}
	return converge.VersionOf(text).String()[:16]
}

// linkPrefix begins annotations of external links, which argocd-server shows and nothing else reads.
const linkPrefix = "link.argocd.argoproj.io/"

// isSteering reports whether programs of the Argo project, or this one, read a label or annotation: those that refresh, notify,
// update images, track resources. An agent does not get to steer those of the hub, whatever the rules are.
func isSteering(key string) bool {
	domain, _, prefixed := strings.Cut(key, "/")
	if !prefixed {
		domain = key
	}
	if key == "app.kubernetes.io/instance" || strings.HasSuffix(domain, "kubectl.kubernetes.io") {
		return true
	}
	for _, family := range []string{"argoproj.io", "argoproj-labs.io"} {
		if domain == family || strings.HasSuffix(domain, "."+family) {
			return true
		}
	}
	return false
}

// shownLabels returns those of an agent's labels that the hub shows.
func (r MirrorRules) shownLabels(labels map[string]string) map[string]string {
	return only(labels, func(key string) bool { return matchesAny(r.labels, key) })
}

// shownAnnotations returns those of an agent's annotations that the hub shows.
func (r MirrorRules) shownAnnotations(annotations map[string]string) map[string]string {
	return only(annotations, func(key string) bool { return strings.HasPrefix(key, linkPrefix) || matchesAny(r.annotations, key) })
}

func matchesAny(globs []glob.Glob, key string) bool {
	return !isSteering(key) && slices.ContainsFunc(globs, func(g glob.Glob) bool {
		matches, known := g.Match(key)
		return matches && known
	})
}

// only returns the entries whose keys may be shown, nil if there are none.
func only(entries map[string]string, may func(key string) bool) map[string]string {
	var out map[string]string
	for key, value := range entries {
		if may(key) {
			merge(&out, map[string]string{key: value})
		}
	}
	return out
}
