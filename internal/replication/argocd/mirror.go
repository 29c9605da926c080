package argocd

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// MirrorDefinition turns an application of an agent's into what shows it on the hub: of a project of the agent's, in its
// cluster.
func MirrorDefinition(agent string, d Definition) (Definition, error) {
	spec, err := decodeObject(d.Spec)
	if err != nil {
		return d, fmt.Errorf("spec: %w", err)
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
	d.Finalizers = nil
	if d.Spec, err = json.Marshal(spec); err != nil {
		return d, fmt.Errorf("spec: %w", err)
	}
	return d, nil
}

// MirrorProject turns a project of an agent's into what shows it on the hub: the project AGENT-NAME, for applications in
// the agent's namespace, in the agent's cluster and in no other. What its roles may do they may do with those.
func MirrorProject(agent, name string, c Content) (Content, error) {
	spec, err := decodeObject(c.Spec)
	if err != nil {
		return c, fmt.Errorf("the project's spec: %w", err)
	}
	p, err := readProject(c.Spec)
	if err != nil {
		return c, err
	}
	spec["sourceNamespaces"] = []any{agent}
	var destinations []any
	for _, namespace := range p.permits(ownPlace()) {
		destinations = append(destinations, map[string]any{"name": agent, "namespace": namespace})
	}
	if spec["destinations"] = destinations; destinations == nil {
		delete(spec, "destinations")
	}
	// On the hub an agent's applications have its name for their destination.
	ownPlace().translate(spec, "*?"+agentParameter+"="+agent, agent)
	if roles, ok := spec["roles"].([]any); ok {
		for _, role := range roles {
			mirrorRole(agent, name, role)
		}
	}
	if c.Spec, err = json.Marshal(spec); err != nil {
		return c, fmt.Errorf("the project's spec: %w", err)
	}
	return c, nil
}

// permits returns the namespaces of a cluster that a project permits, as patterns each of which holds by itself. In Argo CD
// what denies namespaces of one cluster permits them in every other, and what denies them of a cluster that it names denies
// all of that. So here nothing is denied: of all namespaces, those are permitted that are not denied, and of some, those
// that no denial can meet.
func (p *project) permits(c place) []string {
	var some, denied []pattern
	all := false
	for _, d := range p.destinationsOf(c) {
		denies := d.deniesAddress(c)
		switch {
		case denies && d.namespace.denies: // all but what it names
			return nil
		case denies:
			denied = append(denied, d.namespace)
		case d.namespace.denies:
			all, denied = true, append(denied, readGlob(d.namespace.text[1:]))
		case d.namespace.text == "*":
			all = true
		default:
			some = append(some, d.namespace)
		}
	}
	if all {
		return []string{allBut(denied)}
	}
	var out []string
	for _, s := range some {
		if !slices.Contains(out, s.text) && !slices.ContainsFunc(denied, s.meets) {
			out = append(out, s.text)
		}
	}
	return out
}

// allBut returns the pattern for all that none of some others matches.
func allBut(denied []pattern) string {
	var out []string
	for _, d := range denied {
		if d.glob != nil && !slices.Contains(out, d.text) {
			out = append(out, d.text)
		}
	}
	switch len(out) {
	case 0:
		return "*"
	case 1:
		return "!" + out[0]
	}
	return "!{" + strings.Join(out, ",") + "}"
}

// mirrorRole makes a role's policies those of the project on the hub. The tokens that the spoke has issued are none there.
func mirrorRole(agent, project string, role any) {
	r, ok := role.(map[string]any)
	if !ok {
		return
	}
	delete(r, "jwtTokens")
	policies, _ := r["policies"].([]any)
	mirrored := make([]any, 0, len(policies))
	for _, policy := range policies {
		text, _ := policy.(string)
		if translated, ok := mirrorPolicy(agent, project, text); ok {
			mirrored = append(mirrored, translated)
		}
	}
	if policies != nil {
		r["policies"] = mirrored
	}
}

// policyFields is how many there are in a line of a policy.
const policyFields = 6

// mirrorPolicy translates a line "p, proj:PROJECT:ROLE, RESOURCE, ACTION, PROJECT/OBJECT, EFFECT" (argo-cd, RBAC). Objects
// that are in namespaces are in the agent's on the hub. Any other line is of no use in the project where it was written, as
// Argo CD has it, and is nothing that an agent may say on the hub: it is left out.
func mirrorPolicy(agent, project, policy string) (string, bool) {
	fields := strings.Split(policy, ",")
	for i := range fields {
		fields[i] = strings.TrimSpace(fields[i])
	}
	if len(fields) != policyFields || fields[0] != "p" {
		return "", false
	}
	role, ofProject := strings.CutPrefix(fields[1], "proj:"+project+":")
	object, inProject := strings.CutPrefix(fields[4], project+"/")
	if !ofProject || !inProject {
		return "", false
	}
	switch fields[2] {
	case "applications", "applicationsets", "logs", "exec":
		object = agent + "/" + object
	}
	onHub := agent + "-" + project
	fields[1], fields[4] = "proj:"+onHub+":"+role, onHub+"/"+object
	return strings.Join(fields, ", "), true
}
