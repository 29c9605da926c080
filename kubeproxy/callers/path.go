package callers

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/apihttp"
)

// agentsPrefix begins the paths that name an agent.
const agentsPrefix = "/agents/"

// Target is a parsed request-target.
type Target struct {
	// Agent is the one that the prefix names, empty without the prefix.
	Agent identity.Agent
	// Path is the rest, as the caller encoded it.
	Path string
}

// ParseTarget parses a request-target such as "/agents/cluster-1/api/v1/pods?watch=true". It refuses what the agent could
// read differently: relative segments, doubled or encoded slashes around the prefix, and what is no path. The agent checks
// the rest, which is returned byte for byte. Its errors are logged, so they quote nothing but the path.
func ParseTarget(target string) (Target, error) {
	path, _, _ := strings.Cut(target, "?")
	if !strings.HasPrefix(path, "/") {
		return Target{}, apihttp.Errorf(http.StatusBadRequest, "the target of the request is no path: it must begin with a slash")
	}
	if at := strings.IndexFunc(target, func(r rune) bool { return r <= ' ' || r > '~' || r == '#' }); at >= 0 {
		return Target{}, apihttp.Errorf(http.StatusBadRequest, "the path or query has %q at %d: encode it with %%", target[at], at)
	}
	plain, err := url.PathUnescape(path)
	if err != nil {
		return Target{}, apihttp.Errorf(http.StatusBadRequest, "the path %q: %v", truncate(path), err)
	}
	for segment := range strings.SplitSeq(plain, "/") {
		if segment == "." || segment == ".." {
			return Target{}, apihttp.Errorf(http.StatusBadRequest, "the path %q has a segment %q: send the path that is meant", truncate(path), segment)
		}
	}
	switch {
	case strings.HasPrefix(plain, "//"):
		return Target{}, apihttp.Errorf(http.StatusBadRequest, "the path %q begins with two slashes: send the path that is meant", truncate(path))
	case plain+"/" != agentsPrefix && !strings.HasPrefix(plain, agentsPrefix):
		return Target{Path: path}, nil
	default:
		return parsePrefix(path)
	}
}

// parsePrefix parses a path with the prefix.
func parsePrefix(path string) (Target, error) {
	rest, literal := strings.CutPrefix(path, agentsPrefix)
	if !literal {
		return Target{}, apihttp.Errorf(http.StatusBadRequest, "the path %q: write it as %s<name>/…, without encoding", truncate(path), agentsPrefix)
	}
	name, rest, more := strings.Cut(rest, "/")
	agent, err := identity.ParseAgent(name)
	if err != nil {
		return Target{}, apihttp.Errorf(http.StatusBadRequest, "the path %q: %v", truncate(path), err)
	}
	if plain, err := url.PathUnescape(rest); err != nil || strings.HasPrefix(plain, "/") {
		return Target{}, apihttp.Errorf(http.StatusBadRequest, "the path %q has two slashes after the agent's name: send the path that is meant", truncate(path))
	}
	if !more {
		return Target{Agent: agent, Path: "/"}, nil
	}
	return Target{Agent: agent, Path: "/" + rest}, nil
}

// truncate bounds text that a caller chose, for responses and logs.
func truncate(text string) string {
	const most = 256
	if len(text) <= most {
		return text
	}
	return text[:most] + "…"
}
