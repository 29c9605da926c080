package verify

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/argocd"
)

// shownApplication returns what shows an application of an autonomous agent's on the hub, as docs/autonomous-mode.md has it.
func shownApplication(agent string, d argocd.Definition) (argocd.Definition, error) {
	spec, err := decode(d.Spec)
	if err != nil {
		return d, err
	}
	project, named := spec["project"].(string)
	destination, to := spec["destination"].(map[string]any)
	if !named || !to {
		return d, errors.New("it has no project, or no destination")
	}
	shown := map[string]any{"name": agent}
	if namespace, ok := destination["namespace"]; ok {
		shown["namespace"] = namespace
	}
	spec["project"], spec["destination"] = agent+"-"+project, shown
	d.Finalizers = nil
	d.Spec, err = json.Marshal(spec)
	return d, err
}

// shownProject returns what shows a project of an autonomous agent's on the hub, as docs/projects-and-credentials.md has it.
func shownProject(agent, name string, c argocd.Content) (argocd.Content, error) {
	spec, err := decode(c.Spec)
	if err != nil {
		return c, err
	}
	spec["sourceNamespaces"] = []string{agent}
	destinations, _ := spec["destinations"].([]any)
	var shown []any
	seen := make(map[any]bool)
	for _, d := range destinations {
		destination, _ := d.(map[string]any)
		if namespace := destination["namespace"]; !seen[namespace] {
			seen[namespace] = true
			shown = append(shown, map[string]any{"name": agent, "server": "*", "namespace": namespace})
		}
	}
	if destinations != nil {
		spec["destinations"] = shown
	}
	roles, _ := spec["roles"].([]any)
	for _, r := range roles {
		role, _ := r.(map[string]any)
		delete(role, "jwtTokens")
		if policies, ok := role["policies"].([]any); ok {
			role["policies"] = shownPolicies(agent, name, policies)
		}
	}
	c.Spec, err = json.Marshal(spec)
	return c, err
}

// shownPolicies returns the lines of a role that are of its own project, each "p, proj:team:role, what, action, team/object, effect".
func shownPolicies(agent, project string, policies []any) []string {
	shown := []string{}
	for _, p := range policies {
		line, _ := p.(string)
		fields := strings.Split(line, ", ")
		if len(fields) != 6 || !strings.HasPrefix(fields[1], "proj:"+project+":") || !strings.HasPrefix(fields[4], project+"/") {
			continue
		}
		fields[1] = strings.Replace(fields[1], "proj:"+project, "proj:"+agent+"-"+project, 1)
		within := agent + "-" + project + "/"
		if what := fields[2]; what == "applications" || what == "applicationsets" || what == "logs" || what == "exec" {
			within += agent + "/"
		}
		fields[4] = strings.Replace(fields[4], project+"/", within, 1)
		shown = append(shown, strings.Join(fields, ", "))
	}
	return shown
}

// decode decodes a JSON object, with its numbers as they are written.
func decode(raw json.RawMessage) (map[string]any, error) {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	object := make(map[string]any)
	return object, decoder.Decode(&object)
}
