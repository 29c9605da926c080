package argocd

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"strings"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/strictjson"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/glob"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/namespaces"
)

// project is an AppProject's spec as far as it decides about agents.
type project struct {
	spec             map[string]any
	destinations     []destination
	sourceNamespaces namespaces.List
}

type destination struct {
	name, agentName, server, namespace pattern
}

// pattern is a glob of Argo CD's (argo-cd, util/glob). One that begins with "!" matches what the rest does not, and what
// it does not match it denies. One that does not compile matches nothing, and with "!" everything.
// An empty one matches the empty namespace, and nothing else.
type pattern struct {
	text   string
	denies bool
	glob   glob.Glob
}

func readPattern(text string) pattern {
	rest, denies := strings.CutPrefix(text, "!")
	p := readGlob(rest)
	p.text, p.denies = text, denies
	return p
}

// readGlob reads a pattern that cannot deny: "!" is a letter like any other.
func readGlob(text string) pattern {
	compiled, _ := glob.Compile(text)
	return pattern{text: text, glob: compiled}
}

func (p pattern) matches(text string) bool {
	if p.text == "" || text == "" {
		return false
	}
	matches, ok := p.glob.Match(text)
	return ok && matches != p.denies
}

// refuses reports whether it denies a text.
func (p pattern) refuses(text string) bool { return p.denies && text != "" && !p.matches(text) }

// meets reports whether there may be a text that both match. Neither denies.
func (p pattern) meets(other pattern) bool {
	mine, theirs := glob.Beginning(p.text), glob.Beginning(other.text)
	switch {
	case mine == p.text:
		matches, ok := other.glob.Match(mine)
		return matches || !ok
	case theirs == other.text:
		matches, ok := p.glob.Match(theirs)
		return matches || !ok
	}
	return strings.HasPrefix(mine, theirs) || strings.HasPrefix(theirs, mine)
}

func readProject(raw json.RawMessage) (*project, error) {
	spec, err := decodeObject(raw)
	if err != nil {
		return nil, fmt.Errorf("the project's spec: %w", err)
	}
	var known struct {
		Destinations []struct {
			Name      string `json:"name"`
			Server    string `json:"server"`
			Namespace string `json:"namespace"`
		} `json:"destinations"`
		SourceNamespaces []string `json:"sourceNamespaces"`
	}
	if len(raw) > 0 {
		if err := strictjson.Fields(raw, &known); err != nil {
			return nil, fmt.Errorf("the project's spec: %w", err)
		}
	}
	p := &project{spec: spec}
	for _, d := range known.Destinations {
		if err := checkPatterns(d.Name, d.Server, d.Namespace); err != nil {
			return nil, fmt.Errorf("the project's spec: a destination: %w", err)
		}
		p.destinations = append(p.destinations, destination{
			name: readPattern(d.Name), agentName: agentIn(d.Server), server: readPattern(d.Server),
			namespace: readPattern(d.Namespace),
		})
	}
	for _, n := range known.SourceNamespaces {
		if list, err := namespaces.Parse([]string{n}); err == nil { // one that does not compile matches nothing, in Argo CD too
			p.sourceNamespaces = append(p.sourceNamespaces, list...)
		}
	}
	return p, nil
}

// checkPatterns returns an error if a pattern would take too long to match.
func checkPatterns(patterns ...string) error {
	for _, p := range patterns {
		if _, err := glob.Compile(strings.TrimPrefix(p, "!")); errors.Is(err, glob.ErrTooComplex) {
			return err
		}
	}
	return nil
}

// agentIn returns the pattern for agents' names in a cluster's address, as in https://proxy:9090?agentName=edge-*.
func agentIn(server string) pattern {
	_, query, _ := strings.Cut(server, "?")
	values, err := url.ParseQuery(query)
	if err != nil {
		return pattern{}
	}
	name := values.Get("agentName")
	switch {
	case name == "":
		return pattern{}
	case strings.HasPrefix(server, "!"):
		return readPattern("!" + name)
	}
	return readGlob(name) // only an address can deny
}

// destinationsOf returns the destinations that are a cluster or deny namespaces of it, none if it may be no destination at
// all. It follows Argo CD (argo-cd, AppProject.isDestinationMatched): the denial of a name holds for all namespaces, that of
// an address for those that it names. It is stricter in two things, since credentials follow projects: a denial holds
// whatever else the same destination says, and where an agent's address is not known, whatever denies addresses may deny its.
func (p *project) destinationsOf(c clusterNames) []destination {
	var mine []destination
	one := false
	for _, d := range p.destinations {
		denied := d.deniesAddress(c)
		switch {
		case d.name.refuses(c.name), denied && (d.namespace.text == "*" || c.server == ""):
			return nil
		case d.name.matches(c.name), d.hasAddress(c):
			one = true
			mine = append(mine, d)
		case denied:
			mine = append(mine, d)
		}
	}
	if !one {
		return nil
	}
	return mine
}

// hasAddress reports whether it matches the address of a cluster, which may name an agent.
func (d destination) hasAddress(c clusterNames) bool {
	return d.agentName.matches(c.agent) || d.server.matches(c.server) || d.server.text == "*"
}

// deniesNamespaces reports whether it denies namespaces of a cluster, by a pattern that begins with "!". In Argo CD only one that
// matches by the address does.
func (d destination) deniesNamespaces(c clusterNames) bool {
	return d.namespace.denies && d.hasAddress(c)
}

// deniesAddress reports whether it denies the address of a cluster, which may name an agent.
func (d destination) deniesAddress(c clusterNames) bool {
	if d.agentName.denies {
		return d.agentName.refuses(c.agent)
	}
	return d.server.refuses(c.server) || d.server.denies && c.server == ""
}

// onSpoke returns a destination as it reads on the spoke of the agent whose it is.
func (d destination) onSpoke(c clusterNames) map[string]any {
	switch {
	case d.deniesAddress(c):
		return map[string]any{"server": "!" + inClusterServer, "namespace": d.namespace.text}
	case d.namespace.denies && !d.deniesNamespaces(c):
		return map[string]any{"name": InCluster, "namespace": d.namespace.text}
	}
	return map[string]any{"name": InCluster, "server": inClusterServer, "namespace": d.namespace.text}
}

// Recipient is a managed agent, as far as it matters to which projects of the hub are for it.
type Recipient struct {
	Agent string
	// Server is the address of its cluster in Argo CD on the hub, empty if it has none.
	Server string
	// Namespace is the one on the hub whose applications are all this agent's. If it is empty, applications stay in their
	// namespaces.
	Namespace string
}

// IsFor reports whether a project is for an agent, by its destinations and by where applications that use it may be.
func (r *Record) IsFor(to Recipient) bool {
	p, err := r.project()
	return err == nil && (to.Namespace == "" || p.sourceNamespaces.Has(to.Namespace)) && len(p.destinationsOf(to.clusterNames())) > 0
}

// ForAgent returns a project as an agent should have it, and whether it should: of the destinations its own, and of what
// else is said of clusters what is said of its, which there is the cluster that Argo CD runs in; no roles, as nobody logs in
// there.
func (r *Record) ForAgent(to Recipient) (Content, bool) {
	spec, ok := r.specFor(to)
	if !ok {
		return Content{}, false
	}
	return r.withSpec(spec)
}

// specFor returns the spec of a project as an agent should have it, and whether it should.
func (r *Record) specFor(to Recipient) (map[string]any, bool) {
	if !r.IsFor(to) {
		return nil, false
	}
	p, err := r.project()
	if err != nil {
		return nil, false
	}
	spec := make(map[string]any, len(p.spec))
	maps.Copy(spec, p.spec)
	var destinations []any
	for _, d := range p.destinationsOf(to.clusterNames()) {
		destinations = append(destinations, d.onSpoke(to.clusterNames()))
	}
	spec["destinations"] = destinations
	// The replica objects are for in-cluster by name. What they deploy may be applications of the same project, by either.
	to.clusterNames().translate(spec, inClusterServer, InCluster, inClusterServer)
	delete(spec, "roles")
	if to.Namespace != "" {
		delete(spec, "sourceNamespaces")
	}
	return spec, true
}

// withSpec returns the content with another spec.
func (r *Record) withSpec(spec map[string]any) (Content, bool) {
	raw, err := json.Marshal(spec)
	if err != nil {
		return Content{}, false
	}
	content := r.content
	content.Spec = raw
	content, err = SharedProject(content)
	return content, err == nil
}
