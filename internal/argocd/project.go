package argocd

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"strings"

	"github.com/gobwas/glob"
)

// project is an AppProject's spec as far as it decides about agents.
type project struct {
	spec             map[string]any
	destinations     []destination
	sourceNamespaces []pattern
}

type destination struct {
	name, agentName, server pattern
	namespace               string
}

// pattern is a glob of Argo CD's (argo-cd, util/glob). One that begins with "!" matches what the rest does not, and what
// it does not match it denies.
type pattern struct {
	text   string
	denies bool
	glob   *glob.Pattern // nil if it matches nothing
}

func readPattern(text string) pattern {
	p := pattern{text: text}
	rest, denies := strings.CutPrefix(text, "!")
	p.denies = denies
	if rest != "" {
		p.glob, _ = glob.Compile(rest) // what does not compile matches nothing, in Argo CD too
	}
	return p
}

func (p pattern) matches(text string) bool {
	return p.text != "" && text != "" && (p.glob != nil && p.glob.Match(text)) != p.denies
}

// refuses reports whether it denies a text.
func (p pattern) refuses(text string) bool { return p.denies && text != "" && !p.matches(text) }

func readProject(raw json.RawMessage) (*project, error) {
	spec, err := decodeObject(raw)
	if err != nil {
		return nil, fmt.Errorf("the project's spec: %w", err)
	}
	var known struct {
		Destinations     []struct{ Name, Server, Namespace string } `json:"destinations"`
		SourceNamespaces []string                                   `json:"sourceNamespaces"`
	}
	if len(raw) > 0 {
		if err := json.Unmarshal(raw, &known); err != nil {
			return nil, fmt.Errorf("the project's spec: %w", err)
		}
	}
	p := &project{spec: spec}
	for _, d := range known.Destinations {
		p.destinations = append(p.destinations, destination{
			name: readPattern(d.Name), agentName: agentIn(d.Server), server: readPattern(d.Server), namespace: d.Namespace,
		})
	}
	for _, n := range known.SourceNamespaces {
		p.sourceNamespaces = append(p.sourceNamespaces, readPattern(n))
	}
	return p, nil
}

// agentIn returns the pattern for agents' names in a cluster's address, as in https://proxy:9090?agentName=edge-*.
func agentIn(server string) pattern {
	_, query, _ := strings.Cut(server, "?")
	values, err := url.ParseQuery(query)
	if err != nil {
		return pattern{}
	}
	name := values.Get("agentName")
	if name != "" && strings.HasPrefix(server, "!") {
		name = "!" + name
	}
	return readPattern(name)
}

// destinationsOf returns the destinations that are an agent's cluster, none if one of them denies it. It follows Argo CD
// (argo-cd, AppProject.isDestinationMatched).
func (p *project) destinationsOf(agent, server string) []destination {
	var mine []destination
	for _, d := range p.destinations {
		matched := d.name.matches(agent) || d.agentName.matches(agent) || d.server.matches(server) || d.server.text == "*"
		switch {
		case d.name.refuses(agent), d.agentName.refuses(agent), !d.agentName.denies && d.server.refuses(server):
			return nil
		case matched:
			mine = append(mine, d)
		}
	}
	return mine
}

// allows reports whether applications in a namespace may use the project.
func (p *project) allows(namespace string) bool {
	allowed := false
	for _, n := range p.sourceNamespaces {
		if n.refuses(namespace) {
			return false
		}
		allowed = allowed || n.matches(namespace)
	}
	return allowed
}

// Viewer is an agent that looks at the hub's projects.
type Viewer struct {
	Agent string
	// Server is the address of its cluster in Argo CD on the hub, empty if it has none.
	Server string
	// Namespace is the one on the hub whose applications are all this agent's. If it is empty, applications stay in their
	// namespaces.
	Namespace string
}

// Sees reports whether a project is for an agent, by its destinations and by where applications that use it may be.
func (r *Record) Sees(v Viewer) bool {
	p, err := r.project()
	return err == nil && (v.Namespace == "" || p.allows(v.Namespace)) && len(p.destinationsOf(v.Agent, v.Server)) > 0
}

// ForAgent returns a project as an agent should have it, and whether it should: of the destinations its own, which there is
// the cluster that Argo CD runs in; no roles, as nobody logs in there.
func (r *Record) ForAgent(v Viewer) (Content, bool) {
	if !r.Sees(v) {
		return Content{}, false
	}
	p, err := r.project()
	if err != nil {
		return Content{}, false
	}
	spec := make(map[string]any, len(p.spec))
	maps.Copy(spec, p.spec)
	var destinations []any
	for _, d := range p.destinationsOf(v.Agent, v.Server) {
		destinations = append(destinations, map[string]any{"name": InCluster, "server": inClusterServer, "namespace": d.namespace})
	}
	spec["destinations"] = destinations
	delete(spec, "roles")
	if v.Namespace != "" {
		delete(spec, "sourceNamespaces")
	}
	return r.withSpec(spec)
}

// withSpec returns the content with another spec.
func (r *Record) withSpec(spec map[string]any) (Content, bool) {
	raw, err := json.Marshal(spec)
	if err != nil {
		return Content{}, false
	}
	content := r.content
	content.Spec = raw
	return content, true
}
