package argocd

import (
	"encoding/csv"
	"errors"
	"slices"
	"strings"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/glob"
)

// roleMirror makes the roles of an agent's project those of the project that shows it on the hub.
type roleMirror struct {
	agent, project string
	onHub          string // the name of the project that shows it
}

// mirror changes the roles of a decoded project. The tokens that the spoke has issued are none on the hub. If one
// of the policies cannot be translated without allowing more on the hub, no role has any.
func (m roleMirror) mirror(roles []any) {
	all := make([][]any, len(roles))
	ok := true
	for i, role := range roles {
		r, isRole := role.(map[string]any)
		if !isRole {
			continue
		}
		delete(r, "jwtTokens")
		ok = m.mirrorGroups(r) && ok
		policies, _ := r["policies"].([]any)
		all[i] = make([]any, 0, len(policies))
		for _, policy := range policies {
			text, _ := policy.(string)
			lines, err := m.policies(text)
			ok = ok && err == nil
			for _, line := range lines {
				all[i] = append(all[i], line)
			}
		}
	}
	for i, role := range roles {
		r, _ := role.(map[string]any)
		if _, has := r["policies"]; !has {
			continue
		}
		if r["policies"] = all[i]; !ok {
			r["policies"] = []any{}
		}
	}
}

// mirrorGroups changes who has a role. Argo CD writes the name of the role and each group into a line of a policy. ok is false if one
// of them has a line break: what follows it would be a policy, of which the hub wants none.
func (m roleMirror) mirrorGroups(role map[string]any) (ok bool) {
	name, _ := role["name"].(string)
	groups, _ := role["groups"].([]any)
	ok = !strings.Contains(name, "\n")
	for i, group := range groups {
		switch text, _ := group.(string); {
		case strings.Contains(text, "\n"):
			ok = false
		case strings.HasPrefix(text, m.subject()):
			groups[i] = m.subjectOnHub(text)
		}
	}
	if !ok {
		delete(role, "groups")
	}
	return ok
}

// subject begins the names of the project's roles in policies.
func (m roleMirror) subject() string { return "proj:" + m.project + ":" }

func (m roleMirror) subjectOnHub(subject string) string {
	return "proj:" + m.onHub + ":" + strings.TrimPrefix(subject, m.subject())
}

var (
	errPolicy = errors.New("no policy that Argo CD can read: it ignores all policies of the project")
	errDenial = errors.New("a deny rule that cannot be translated for the hub")
)

// How many fields the lines of a policy have: "p, SUBJECT, RESOURCE, ACTION, OBJECT, EFFECT" and "g, MEMBER, SUBJECT".
const (
	policyFields = 6
	groupFields  = 3
)

// policies translates a policy, which may be of several lines, and is read as Argo CD does (argo-cd, util/rbac.loadPolicyLine).
func (m roleMirror) policies(text string) ([]string, error) {
	var out []string
	for line := range strings.SplitSeq(text, "\n") {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		reader := csv.NewReader(strings.NewReader(line))
		reader.TrimLeadingSpace = true
		fields, err := reader.Read()
		switch {
		case err != nil:
			return nil, errPolicy
		case fields[0] == "p" && len(fields) == policyFields:
			lines, ok := m.policy(fields)
			if !ok && fields[5] != "allow" {
				return nil, errDenial
			}
			out = append(out, lines...)
		case fields[0] == "g" && len(fields) == groupFields:
			if strings.HasPrefix(fields[1], m.subject()) {
				return nil, errDenial // the member would have the denials of the other role too
			}
		default:
			return nil, errPolicy
		}
	}
	return out, nil
}

// policy translates a line "p, proj:PROJECT:ROLE, RESOURCE, ACTION, PROJECT/OBJECT, EFFECT". Objects that are in namespaces are in the
// agent's on the hub, so there is a line for each kind of resource that it is about. Any other line is nothing that an agent may say
// on the hub.
func (m roleMirror) policy(fields []string) (lines []string, ok bool) {
	object, inProject := strings.CutPrefix(fields[4], m.project+"/")
	plain := !slices.ContainsFunc(fields, func(f string) bool { return strings.ContainsAny(f, "\",\r") || strings.TrimLeft(f, " \t") != f })
	resource, err := glob.Compile(fields[2])
	if !inProject || !plain || err != nil || !strings.HasPrefix(fields[1], m.subject()) {
		return nil, false
	}
	for _, kind := range []string{"applications", "applicationsets", "logs", "exec", "repositories", "clusters"} {
		matches, known := resource.Match(kind)
		switch {
		case !known:
			return nil, false
		case !matches:
			continue
		}
		place := m.onHub + "/" + m.agent + "/"
		if kind == "repositories" || kind == "clusters" {
			place = m.onHub + "/"
		}
		lines = append(lines, strings.Join([]string{"p", m.subjectOnHub(fields[1]), kind, fields[3], place + object, fields[5]}, ", "))
	}
	return lines, true
}
