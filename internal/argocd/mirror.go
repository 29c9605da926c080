package argocd

import (
	"encoding/json"
	"fmt"
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
// the agent's namespace, in the agent's cluster. What its roles may do they may do with those.
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
	seen := make(map[string]bool)
	for _, d := range p.destinations {
		if namespace := d.namespace.text; !seen[namespace] {
			seen[namespace] = true
			destinations = append(destinations, map[string]any{"name": agent, "server": "*", "namespace": namespace})
		}
	}
	if spec["destinations"] = destinations; destinations == nil {
		delete(spec, "destinations")
	}
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
