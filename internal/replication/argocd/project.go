package argocd

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"strings"
	"sync"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/strictjson"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/glob"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/namespaces"
)

// project is an AppProject's spec as far as it decides about agents.
type project struct {
	spec             map[string]any
	destinations     []destination
	sourceNamespaces func() namespaces.List // made when it is first asked for: nobody asks for an agent's, which may be expressions
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

// matches reports whether it is for a text. What cannot be told within the budget is not.
func (p pattern) matches(work *glob.Budget, text string) bool {
	if p.text == "" || text == "" {
		return false
	}
	matches, ok := work.Match(p.glob, text)
	return ok && matches != p.denies
}

// refuses reports whether it denies a text, or may.
func (p pattern) refuses(work *glob.Budget, text string) bool {
	return p.denies && text != "" && !p.matches(work, text)
}

// meets reports whether there may be a text that both match. Neither denies.
func (p pattern) meets(work *glob.Budget, other pattern) bool {
	mine, theirs := glob.Beginning(p.text), glob.Beginning(other.text)
	switch {
	case mine == p.text:
		matches, ok := work.Match(other.glob, mine)
		return matches || !ok
	case theirs == other.text:
		matches, ok := work.Match(p.glob, theirs)
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
	p.sourceNamespaces = sync.OnceValue(func() namespaces.List { return readNamespaces(known.SourceNamespaces) })
	return p, nil
}

// readNamespaces reads a list of which what does not compile matches nothing, as in Argo CD.
func readNamespaces(patterns []string) namespaces.List {
	var all namespaces.List
	for _, n := range patterns {
		if list, err := namespaces.Parse([]string{n}); err == nil {
			all = append(all, list...)
		}
	}
	return all
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
		case d.name.refuses(c.work, c.name), denied && (d.namespace.text == "*" || c.server == ""):
			return nil
		case d.name.matches(c.work, c.name), d.hasAddress(c):
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
	return d.agentName.matches(c.work, c.agent) || d.server.matches(c.work, c.server) || d.server.text == "*"
}

// deniesNamespaces reports whether it denies namespaces of a cluster, by a pattern that begins with "!". In Argo CD only one that
// matches by the address does.
func (d destination) deniesNamespaces(c clusterNames) bool {
	return d.namespace.denies && d.hasAddress(c)
}

// deniesAddress reports whether it denies the address of a cluster, which may name an agent.
func (d destination) deniesAddress(c clusterNames) bool {
	if d.agentName.denies {
		return d.agentName.refuses(c.work, c.agent)
	}
	return d.server.refuses(c.work, c.server) || d.server.denies && c.server == ""
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

// ProjectFault says why a project is for nobody, whatever its destinations are; nil if nothing is wrong with it.
func (r *Record) ProjectFault() error {
	_, err := r.project()
	return err
}

// IsFor reports whether a project is for an agent, by its destinations and by where applications that use it may be.
func (r *Record) IsFor(to Recipient) bool {
	p, err := r.project()
	return err == nil && (to.Namespace == "" || p.sourceNamespaces().Has(to.Namespace)) && len(p.destinationsOf(to.clusterNames())) > 0
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
	cluster := to.clusterNames()
	for _, d := range p.destinationsOf(cluster) {
		destinations = append(destinations, d.onSpoke(cluster))
	}
	spec["destinations"] = destinations
	// The replica objects are for in-cluster by name. What they deploy may be applications of the same project, by either.
	cluster.translate(spec, inClusterServer, InCluster, inClusterServer)
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
