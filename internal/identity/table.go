package identity

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// Table says which SPIFFE IDs are of which agents, where no template can: with a service mesh the ID says the namespace and the service
// account of an agent, and each cluster may have a trust domain of its own. The zero Table knows none. It is not changed once it is made.
type Table struct {
	agents map[spiffeid.ID]Agent
	listed map[Agent]bool // agents that the table has IDs of
}

// ParseTable reads the data of a ConfigMap: for each agent its SPIFFE IDs, one a line. What can be read is in the table even if the
// error says that other things cannot. An ID of two agents is of neither.
func ParseTable(data map[string]string) (Table, error) {
	t := Table{agents: make(map[spiffeid.ID]Agent), listed: make(map[Agent]bool)}
	var problems []error
	claimed := make(map[spiffeid.ID][]string)
	for name, text := range data {
		agent, err := ParseAgent(name)
		if err != nil {
			problems = append(problems, err)
			continue
		}
		t.listed[agent] = true
		for line := range strings.Lines(text) {
			if line = strings.TrimSpace(line); line == "" {
				continue
			}
			id, err := spiffeid.FromString(line)
			if err != nil {
				problems = append(problems, fmt.Errorf("agent %s: SPIFFE ID %q: %w", agent, shorten(line, maxShownID), err))
				continue
			}
			t.agents[id] = agent
			claimed[id] = append(claimed[id], name)
		}
	}
	for id, names := range claimed {
		if len(names) > 1 && slices.ContainsFunc(names, func(name string) bool { return name != names[0] }) {
			slices.Sort(names)
			delete(t.agents, id)
			problems = append(problems, fmt.Errorf("SPIFFE ID %q is that of %s: leave it to one of them", id, strings.Join(names, " and ")))
		}
	}
	slices.SortFunc(problems, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return t, errors.Join(problems...)
}

// maxShownID is how much of what should be a SPIFFE ID is shown.
const maxShownID = 300

// Len is how many SPIFFE IDs the table has.
func (t Table) Len() int { return len(t.agents) }

// byID returns how agents are named by their SPIFFE IDs: by the table, and else by a template.
func byID(options Options) (naming, error) {
	templates, err := ParseAgentTemplates(options.Auth, options.TrustDomain)
	if err != nil {
		return naming{}, err
	}
	return naming{name: func(p Proof) (string, error) {
		uri, err := p.URI()
		if err != nil {
			return "", err
		}
		id, err := spiffeid.FromString(uri)
		if err != nil {
			return "", fmt.Errorf("its URI %q is no SPIFFE ID: %w", uri, err)
		}
		var table Table
		if options.Table != nil {
			table = options.Table()
		}
		return table.name(id, templates)
	}}, nil
}

// name returns whose a SPIFFE ID is.
func (t Table) name(id spiffeid.ID, templates []Template) (string, error) {
	if agent, ok := t.agents[id]; ok {
		return string(agent), nil
	}
	for _, template := range templates {
		values, ok := template.Match(id)
		if !ok {
			continue
		}
		if t.listed[Agent(values["agent"])] {
			return "", fmt.Errorf("its SPIFFE ID %q is not one of those that the hub's table has for agent %s: add it there, or take it from the row of another agent", id, values["agent"])
		}
		return values["agent"], nil
	}
	return "", fmt.Errorf("its SPIFFE ID %q is of no form in the hub's setting --auth, and not in its table of SPIFFE IDs: register the workload in such a form, or add the ID there", id)
}
