package argocd

import (
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// roleMirror makes the roles of an agent's project those of the project that shows it on the hub. Argo CD joins the lines of all
// roles to one text, without escaping anything (argo-cd, AppProject.ProjectPoliciesString), so here is a grammar, and what is not
// of it is left out.
type roleMirror struct {
	agent, project string
	onHub          string // the name of the project that shows it
}

// What a role of an agent's may be (argo-cd, validateRoleName, isValidAction, isValidObject), with nothing that ends a line or a
// field.
var (
	roleName   = regexp.MustCompile(`^[a-zA-Z0-9]([-_a-zA-Z0-9]*[a-zA-Z0-9])?$`)
	roleAction = regexp.MustCompile(`^(get|create|update|delete|sync|override|\*|(action|update|delete)/[-\w.*/]+)$`)
	roleObject = regexp.MustCompile(`^[-\w.*]+(/[-\w.*]+)?$`)
)

// Limits of roles. Those of projects on hubs do not come close.
const (
	maxRoles      = 64
	maxRoleParts  = 256 // policies, and groups, of a role
	maxRoleLength = 512 // of a name, a group or a policy
)

// roleResources are what a role of an agent's may be about: what there is in the agent's namespace. Repositories and clusters of a
// project are configuration of the hub.
var roleResources = []string{"applications", "applicationsets", "logs", "exec"} //nolint:gochecknoglobals // a constant

// mirror returns the roles that the hub shows of a decoded list. If a denial cannot be shown, nothing is allowed by any role.
func (m roleMirror) mirror(list any) []any {
	roles, _ := list.([]any)
	if len(roles) > maxRoles {
		return nil
	}
	var out []any
	seen, deniable := make(map[string]bool), true
	for _, item := range roles {
		r, _ := item.(map[string]any)
		name, _ := r["name"].(string)
		if !roleName.MatchString(name) || len(name) > maxRoleLength || seen[name] {
			deniable = deniable && !denies(r)
			continue
		}
		seen[name] = true
		policies, ok := m.policies(name, r)
		deniable = deniable && ok
		role := map[string]any{"name": name, "policies": policies}
		if description, ok := r["description"].(string); ok {
			role["description"] = description
		}
		if groups := groupsOf(r); len(groups) > 0 {
			role["groups"] = groups
		}
		out = append(out, role)
	}
	if !deniable {
		for _, role := range out {
			role.(map[string]any)["policies"] = []any{} //nolint:forcetypeassert // it was made above
		}
	}
	return out
}

// denies reports whether a role has a line that does not only allow.
func denies(role map[string]any) bool {
	policies, _ := role["policies"].([]any)
	return slices.ContainsFunc(policies, func(policy any) bool {
		text, _ := policy.(string)
		return strings.Contains(text, "deny")
	})
}

// groupsOf returns the groups of a decoded role that the hub shows: the names of groups of the hub's own accounts and of its SSO.
// None is a role, of whichever project.
func groupsOf(role map[string]any) []any {
	list, _ := role["groups"].([]any)
	var out []any
	for _, item := range list[:min(len(list), maxRoleParts)] {
		if text, _ := item.(string); isGroup(text) && !slices.Contains(out, any(text)) {
			out = append(out, text)
		}
	}
	return out
}

// isGroup reports whether a text is the name of a group and nothing else, wherever in a line it is written.
func isGroup(text string) bool {
	strange := func(r rune) bool {
		return unicode.IsControl(r) || !unicode.IsPrint(r) || strings.ContainsRune("\",'`\\#", r)
	}
	return text != "" && len(text) <= maxRoleLength && strings.TrimSpace(text) == text && !strings.ContainsFunc(text, strange) &&
		!strings.HasPrefix(text, "proj:") && !strings.HasPrefix(text, "role:")
}

// policies returns the lines of a decoded role that the hub shows, and false if one of the others may be a denial.
func (m roleMirror) policies(name string, role map[string]any) ([]any, bool) {
	list, _ := role["policies"].([]any)
	out, ok := []any{}, len(list) <= maxRoleParts
	for _, item := range list[:min(len(list), maxRoleParts)] {
		text, _ := item.(string)
		line, is := m.policy(name, text)
		switch {
		case !is:
			ok = ok && !strings.Contains(text, "deny") && !voids(text)
		case !slices.Contains(out, any(line)):
			out = append(out, line)
		}
	}
	return out, ok
}

// voids reports whether Argo CD takes a line for valid and then reads none of the project's: casbin knows no "p ".
func voids(text string) bool {
	kind, _, _ := strings.Cut(text, ",")
	return strings.TrimSpace(kind) == "p" && strings.TrimLeft(kind, " ") != "p"
}

// policy translates the line "p, proj:PROJECT:ROLE, RESOURCE, ACTION, PROJECT/OBJECT, EFFECT" of a role. Objects are in the agent's
// namespace on the hub. Any other line is nothing that an agent may say there.
func (m roleMirror) policy(role, text string) (line string, ok bool) {
	fields := strings.Split(text, ",")
	if len(fields) != 6 || len(text) > maxRoleLength {
		return "", false
	}
	for i := range fields {
		fields[i] = strings.TrimLeft(fields[i], " ") // as Argo CD reads lines (casbin): a space behind a field is a part of it
	}
	object, inProject := strings.CutPrefix(fields[4], m.project+"/")
	switch {
	case fields[0] != "p", fields[1] != "proj:"+m.project+":"+role, !slices.Contains(roleResources, fields[2]),
		!roleAction.MatchString(fields[3]), !inProject || !roleObject.MatchString(object), fields[5] != "allow" && fields[5] != "deny":
		return "", false
	}
	return strings.Join([]string{
		"p", "proj:" + m.onHub + ":" + role, fields[2], fields[3], m.onHub + "/" + m.agent + "/" + object, fields[5],
	}, ", "), true
}
