package argocd

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/glob"
)

// MirrorDefinition turns an application of an agent's into what shows it on the hub: of a project of the agent's, in its
// cluster, without finalizers, and with the labels and annotations that the rules show. It fails for what would take the hub's Argo CD
// too long to match with the agent's own patterns.
func MirrorDefinition(agent string, rules MirrorRules, d Definition) (Definition, error) {
	spec, err := decodeObject(d.Spec)
	if err != nil {
		return d, fmt.Errorf("spec: %w", err)
	}
	if err := checkMatched(spec); err != nil {
		return d, err
	}
	project, _ := spec["project"].(string)
	spec["project"] = agent + "-" + project
	destination, _ := spec["destination"].(map[string]any)
	if destination == nil {
		destination = make(map[string]any)
		spec["destination"] = destination
	}
	delete(destination, "server")
	destination["name"] = agent
	d.Finalizers, d.Labels, d.Annotations = nil, rules.shownLabels(d.Labels), rules.shownAnnotations(d.Annotations)
	if d.Spec, err = json.Marshal(spec); err != nil {
		return d, fmt.Errorf("spec: %w", err)
	}
	return d, nil
}

// MirrorProject turns a project of an agent's into what shows it on the hub: the project AGENT-NAME, for applications in
// the agent's namespace, in the agent's cluster and in no other, with the labels and annotations that the rules show. If they show
// roles, what those may do they may do with what is there.
func MirrorProject(agent string, rules MirrorRules, name string, c Content) (Content, error) {
	spec, err := decodeObject(c.Spec)
	if err != nil {
		return c, fmt.Errorf("the project's spec: %w", err)
	}
	if err := checkShown(spec); err != nil {
		return c, err
	}
	p, err := readProject(c.Spec)
	if err != nil {
		return c, err
	}
	spec["sourceNamespaces"] = []any{agent}
	cluster := inClusterNames()
	permitted, err := p.permits(cluster)
	if err != nil {
		return c, err
	}
	var destinations []any
	for _, namespace := range permitted {
		destinations = append(destinations, map[string]any{"name": agent, "namespace": namespace})
	}
	if spec["destinations"] = destinations; destinations == nil {
		delete(spec, "destinations")
	}
	// On the hub an agent's applications have its name for their destination.
	cluster.translate(spec, "*?"+agentParameter+"="+agent, agent)
	if cluster.work.Spent() {
		return c, errTooMuchWork
	}
	roles := roleMirror{agent: agent, project: name, onHub: agent + "-" + name}.mirror(spec["roles"])
	if spec["roles"] = roles; len(roles) == 0 || !rules.texts.Roles {
		delete(spec, "roles")
	}
	c = Content{Labels: rules.shownLabels(c.Labels), Annotations: rules.shownAnnotations(c.Annotations)}
	if c.Spec, err = json.Marshal(spec); err != nil {
		return c, fmt.Errorf("the project's spec: %w", err)
	}
	return c, nil
}

// permits returns the namespaces of a cluster that a project permits, as patterns each of which holds by itself. In Argo CD
// what denies namespaces of one cluster permits them in every other, and what denies them of a cluster that it names denies
// all of that. So here nothing is denied. Denials become part of patterns that match everything else. A pattern for some
// namespaces is left out if a denial may match one of them. It returns an error if there are too many of both.
func (p *project) permits(c clusterNames) ([]string, error) {
	var some, allButOne, denied []pattern
	all := false
	for _, d := range p.destinationsOf(c) {
		switch denies := d.deniesAddress(c); {
		case denies && d.namespace.denies: // all but what it names
			return nil, nil
		case denies:
			denied = append(denied, d.namespace)
		case d.deniesNamespaces(c):
			all, denied = true, append(denied, readGlob(d.namespace.text[1:]))
		case d.namespace.denies:
			allButOne = append(allButOne, readGlob(d.namespace.text[1:]))
		case d.namespace.text == "*":
			all = true
		default:
			some = append(some, d.namespace)
		}
	}
	if all {
		return allBut(denied), nil
	}
	if work := (len(allButOne) + len(some)) * size(denied); work > maxDenials {
		return nil, errTooManyDenials
	}
	var out []string
	for _, but := range allButOne {
		out = append(out, allBut(append(slices.Clone(denied), but))...)
	}
	listed := make(map[string]bool, len(out)+len(some))
	for _, text := range out {
		listed[text] = true
	}
	for _, s := range some {
		if !listed[s.text] && !slices.ContainsFunc(denied, func(d pattern) bool { return s.meets(c.work, d) }) {
			listed[s.text] = true
			out = append(out, s.text)
		}
	}
	return out, nil
}

// maxDenials bounds the denials of a project of an agent's, in bytes, times what else it permits: each permission is compared
// with each denial, or has all of them in its pattern.
const maxDenials = 4 << 20

var errTooManyDenials = fmt.Errorf("the project's spec: want fewer destinations that deny namespaces: "+
	"those that permit some, times the length of those that deny some, are more than %d", maxDenials)

// size returns the length of patterns, and at least one for each.
func size(patterns []pattern) int {
	n := len(patterns)
	for _, p := range patterns {
		n += len(p.text)
	}
	return n
}

// allBut returns the pattern for all that none of some others matches, none if there is no such pattern.
func allBut(denied []pattern) []string {
	var texts []string
	listed := make(map[string]bool, len(denied))
	for _, d := range denied {
		if d.glob.Compiled() && !listed[d.text] {
			listed[d.text] = true
			texts = append(texts, d.text)
		}
	}
	if len(texts) == 0 {
		return []string{"*"}
	}
	if union, ok := glob.AnyOf(texts); ok {
		return []string{"!" + union}
	}
	return nil
}
