package identity

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// Template is a form of SPIFFE IDs, which says where in them an agent's name is:
//
//	spiffe://hub.test/ns/argocd/sa/argocd-agent/agent/{agent}
//	spiffe://{agent}.spokes.test/ns/argocd/sa/argocd-agent
//
// Of a trust domain a variable is one label, of a path one segment, or a part of one. Everything else is literal, and an ID matches as a
// whole or not at all. The zero Template matches nothing.
type Template struct {
	text  string
	parts []part // the trust domain's labels, and then the path's segments
	split int    // how many are labels
}

// part is a label or a segment: a literal, or a variable between two.
type part struct {
	before, variable, after string
}

// trustDomainVariable is replaced when a template is parsed: an ID may never choose its own authority.
const trustDomainVariable = "{trustDomain}"

// ParseTemplate reads a template. {trustDomain} in it stands for the given one, which may be empty if it is not used. Each of the
// variables has to be in the template once, and no other may be. Errors say what a template looks like.
func ParseTemplate(text, trustDomain string, variables ...string) (Template, error) {
	t, err := parseTemplate(text, trustDomain)
	if err == nil {
		err = t.requireVariables(variables)
	}
	if err != nil {
		return Template{}, fmt.Errorf("SPIFFE ID %q: %w", text, err)
	}
	return t, nil
}

// ParseAgentTemplates reads the templates in a value of Options.Auth, in their order. There are none if that names agents otherwise, or by the
// Table alone.
func ParseAgentTemplates(auth, trustDomain string) ([]Template, error) {
	if method, _, _ := strings.Cut(auth, ":"); method != "spiffe" || auth == "spiffe:" {
		return nil, nil
	}
	var templates []Template
	for text := range strings.SplitSeq(auth, ",") {
		template, err := ParseTemplate(text, trustDomain, "agent")
		if err != nil {
			return nil, err
		}
		templates = append(templates, template)
	}
	return templates, nil
}

func parseTemplate(text, trustDomain string) (Template, error) {
	filled := text
	if strings.Contains(text, trustDomainVariable) {
		if trustDomain == "" {
			return Template{}, errors.New("it has {trustDomain}, and there is none: set --trust-domain, or write it out")
		}
		filled = strings.ReplaceAll(text, trustDomainVariable, trustDomain)
	}
	rest, ok := strings.CutPrefix(filled, "spiffe://")
	if !ok {
		return Template{}, errors.New(`it must begin with "spiffe://"`)
	}
	domain, path, _ := strings.Cut(rest, "/")
	t := Template{text: filled}
	for label := range strings.SplitSeq(domain, ".") {
		parsed, err := parsePart(label)
		if err != nil {
			return Template{}, err
		}
		t.parts = append(t.parts, parsed)
	}
	t.split = len(t.parts)
	for segment := range strings.SplitSeq(path, "/") {
		parsed, err := parsePart(segment)
		if err != nil {
			return Template{}, err
		}
		t.parts = append(t.parts, parsed)
	}
	// With something in place of the variables it has to be an ID: what is literal is what IDs may have.
	if _, err := spiffeid.FromString(t.fill(func(string) string { return "x" })); err != nil {
		return Template{}, err
	}
	return t, nil
}

// parsePart reads a label or a segment.
func parsePart(text string) (part, error) {
	before, rest, found := strings.Cut(text, "{")
	if !found {
		return part{before: text}, nil
	}
	variable, after, closed := strings.Cut(rest, "}")
	if !closed || variable == "" || strings.ContainsAny(variable+after, "{}") {
		return part{}, fmt.Errorf("%q: want one variable in braces between slashes, or between dots in the trust domain, such as {agent}", text)
	}
	return part{before, variable, after}, nil
}

func (t Template) requireVariables(want []string) error {
	count := make(map[string]int)
	for _, p := range t.parts {
		if p.variable != "" {
			count[p.variable]++
		}
	}
	for _, variable := range want {
		if count[variable] != 1 {
			return fmt.Errorf("want {%s} in it, once", variable)
		}
		delete(count, variable)
	}
	for variable := range count {
		return fmt.Errorf("{%s} means nothing here", variable)
	}
	return nil
}

// Match returns what an ID has in the place of the variables, and whether it is of the template's form.
func (t Template) Match(id spiffeid.ID) (map[string]string, bool) {
	parts := append(strings.Split(id.TrustDomain().Name(), "."), strings.Split(strings.TrimPrefix(id.Path(), "/"), "/")...)
	if len(t.parts) == 0 || len(parts) != len(t.parts) || strings.Count(id.TrustDomain().Name(), ".")+1 != t.split {
		return nil, false
	}
	values := make(map[string]string)
	for i, p := range t.parts {
		value, ok := p.match(parts[i])
		if !ok {
			return nil, false
		}
		if p.variable != "" {
			values[p.variable] = value
		}
	}
	return values, true
}

// match returns what a label or segment has in the place of the variable. That is never empty.
func (p part) match(text string) (value string, ok bool) {
	if p.variable == "" {
		return "", text == p.before
	}
	value, before := strings.CutPrefix(text, p.before)
	value, after := strings.CutSuffix(value, p.after)
	return value, before && after && value != ""
}

// fill returns the ID that has these values in the place of the variables.
func (t Template) fill(value func(variable string) string) string {
	var id strings.Builder
	id.WriteString("spiffe://")
	for i, p := range t.parts {
		switch {
		case i >= t.split:
			id.WriteByte('/')
		case i > 0:
			id.WriteByte('.')
		}
		id.WriteString(p.before)
		if p.variable != "" {
			id.WriteString(value(p.variable))
		}
		id.WriteString(p.after)
	}
	return id.String()
}

// TrustDomain returns the trust domain of all IDs of the form, and whether there is only one: a variable may be in its place.
func (t Template) TrustDomain() (spiffeid.TrustDomain, bool) {
	if slices.ContainsFunc(t.parts[:t.split], func(p part) bool { return p.variable != "" }) {
		return spiffeid.TrustDomain{}, false
	}
	name, _, _ := strings.Cut(strings.TrimPrefix(t.text, "spiffe://"), "/")
	domain, err := spiffeid.TrustDomainFromString(name)
	return domain, err == nil
}

// ID returns the SPIFFE ID of an agent by a template whose one variable is {agent}.
func (t Template) ID(agent Agent) (spiffeid.ID, error) {
	id, err := spiffeid.FromString(t.fill(func(string) string { return string(agent) }))
	if err != nil {
		return spiffeid.ID{}, fmt.Errorf("SPIFFE ID of agent %q by the form %q: %w", agent, t, err)
	}
	return id, nil
}

// String is the template as it was written, with the trust domain filled in.
func (t Template) String() string { return t.text }
