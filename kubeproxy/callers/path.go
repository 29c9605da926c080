package callers

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/apihttp"
)

// prefix begins the paths that say which agent is meant.
const prefix = "/agents/"

// Way is where a request-target leads.
type Way struct {
	// Agent is the one that the prefix names; empty without the prefix.
	Agent identity.Agent
	// Path is the rest, as the caller encoded it.
	Path string
}

// ParseTarget takes a request-target, such as "/agents/cluster-1/api/v1/pods?watch=true", apart. It refuses what could mean
// one thing here and another at the agent, rather than to guess: dots, doubled or encoded slashes around the prefix, and
// what is no path. All the rest is the agent's to judge, and is returned byte for byte.
func ParseTarget(target string) (Way, error) {
	path, _, _ := strings.Cut(target, "?")
	if !strings.HasPrefix(path, "/") {
		return Way{}, apihttp.Errorf(http.StatusBadRequest, "the request is for %q: it must begin with a slash", shorten(target))
	}
	if at := strings.IndexFunc(target, func(r rune) bool { return r <= ' ' || r > '~' || r == '#' }); at >= 0 {
		return Way{}, apihttp.Errorf(http.StatusBadRequest, "the path or query has %q at %d: encode it with %%", target[at], at)
	}
	plain, err := url.PathUnescape(path)
	if err != nil {
		return Way{}, apihttp.Errorf(http.StatusBadRequest, "the path %q: %v", shorten(path), err)
	}
	for segment := range strings.SplitSeq(plain, "/") {
		if segment == "." || segment == ".." {
			return Way{}, apihttp.Errorf(http.StatusBadRequest, "the path %q has a segment %q: send the path that is meant", shorten(path), segment)
		}
	}
	switch {
	case strings.HasPrefix(plain, "//"):
		return Way{}, apihttp.Errorf(http.StatusBadRequest, "the path %q begins with two slashes: send the path that is meant", shorten(path))
	case plain+"/" != prefix && !strings.HasPrefix(plain, prefix):
		return Way{Path: path}, nil
	default:
		return parsePrefix(path)
	}
}

// parsePrefix takes a path with the prefix apart.
func parsePrefix(path string) (Way, error) {
	rest, plainly := strings.CutPrefix(path, prefix)
	if !plainly {
		return Way{}, apihttp.Errorf(http.StatusBadRequest, "the path %q: write it as %s<name>/…, without encoding", shorten(path), prefix)
	}
	name, rest, more := strings.Cut(rest, "/")
	agent, err := identity.ParseAgent(name)
	if err != nil {
		return Way{}, apihttp.Errorf(http.StatusBadRequest, "the path %q: %v", shorten(path), err)
	}
	if plain, err := url.PathUnescape(rest); err != nil || strings.HasPrefix(plain, "/") {
		return Way{}, apihttp.Errorf(http.StatusBadRequest, "the path %q has two slashes after the agent's name: send the path that is meant", shorten(path))
	}
	if !more {
		return Way{Agent: agent, Path: "/"}, nil
	}
	return Way{Agent: agent, Path: "/" + rest}, nil
}

// shorten keeps what a caller chose from filling answers and logs.
func shorten(text string) string {
	const most = 256
	if len(text) <= most {
		return text
	}
	return text[:most] + "…"
}
