package policy

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// The values of impersonation in the ConfigMap.
const (
	denyImpersonation   = "deny"
	recordImpersonation = "record"
	allowImpersonation  = "allow"
)

// Rules is the content of the ConfigMap.
type Rules struct {
	// Applications turns the default rule on or off. It is on by default.
	Applications *bool `json:"applications,omitempty"`
	// Impersonation is what becomes of requests in which the hub names a user: deny, the default, refuses them; record leaves the user
	// out and only logs it, so that the request has the agent's permissions, as any other; with allow the API server's RBAC also
	// decides, for that user.
	Impersonation string `json:"impersonation,omitempty"`
	// Rules allow requests, in addition to the default rule.
	Rules []Rule `json:"rules,omitempty"`
}

// Rule is an RBAC rule of Kubernetes, restricted to namespaces.
type Rule struct {
	rbacv1.PolicyRule `json:",inline"`
	// Namespaces are names or globs. Without any, the rule applies everywhere: in each namespace, to lists across all
	// namespaces, and to cluster-scoped objects. With some, even "*", it applies only within a namespace.
	Namespaces []string `json:"namespaces,omitempty"`
}

// ParseRules parses a policy. Its error lists all mistakes and where they are.
func ParseRules(text []byte) (*Rules, error) {
	asJSON, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		return nil, fmt.Errorf("policy: %w", err)
	}
	rules := &Rules{}
	wrong, err := kjson.UnmarshalStrict(asJSON, rules)
	if err != nil {
		return nil, fmt.Errorf("policy: %w", err)
	}
	switch rules.Impersonation {
	case "", denyImpersonation, recordImpersonation, allowImpersonation:
	default:
		wrong = append(wrong, fmt.Errorf("impersonation: want %s, %s or %s, not %q", allowImpersonation, recordImpersonation, denyImpersonation,
			rules.Impersonation))
	}
	for i, rule := range rules.Rules {
		if err := rule.check(); err != nil {
			wrong = append(wrong, fmt.Errorf("rules[%d]: %w", i, err))
		}
	}
	if len(wrong) > 0 {
		return nil, fmt.Errorf("policy: %w", errors.Join(wrong...))
	}
	return rules, nil
}

// check refuses a rule that could never allow anything, because its author meant something else.
func (r Rule) check() error {
	var wrong []error
	resources := len(r.APIGroups)+len(r.Resources)+len(r.ResourceNames)+len(r.Namespaces) > 0
	switch {
	case len(r.Verbs) == 0:
		wrong = append(wrong, errors.New("verbs: name one, or \"*\""))
	case resources && len(r.NonResourceURLs) > 0:
		wrong = append(wrong, errors.New("nonResourceURLs: they need a rule of their own"))
	case len(r.NonResourceURLs) == 0 && (len(r.APIGroups) == 0 || len(r.Resources) == 0):
		wrong = append(wrong, errors.New("apiGroups and resources: name one of each (the core group is \"\"), or name nonResourceURLs"))
	}
	for _, u := range r.NonResourceURLs {
		if u != rbacv1.NonResourceAll && (!strings.HasPrefix(u, "/") || strings.Contains(strings.TrimSuffix(u, "*"), "*")) {
			wrong = append(wrong, fmt.Errorf("nonResourceURLs: %q: want a path, with a * at its end if it stands for more", u))
		}
	}
	for _, n := range r.Namespaces {
		if _, err := path.Match(n, ""); err != nil || n == "" {
			wrong = append(wrong, fmt.Errorf("namespaces: %q: want a name or a glob", n))
		}
	}
	return errors.Join(wrong...)
}

// defaultRule reports whether the default rule is on.
func (r *Rules) defaultRule() bool { return r.Applications == nil || *r.Applications }

// impersonation returns what becomes of requests in which the hub names a user.
func (r *Rules) impersonation() string { return cmp.Or(r.Impersonation, denyImpersonation) }

// allows reports whether one of the rules allows a request.
func (r *Rules) allows(q *Request) bool {
	return slices.ContainsFunc(r.Rules, func(rule Rule) bool { return rule.allows(q) })
}

func (r Rule) allows(q *Request) bool {
	if !contains(r.Verbs, rbacv1.VerbAll, q.Verb) {
		return false
	}
	if !q.IsResourceRequest {
		return slices.ContainsFunc(r.NonResourceURLs, func(u string) bool {
			prefix, open := strings.CutSuffix(u, "*")
			return u == q.Path || open && strings.HasPrefix(q.Path, prefix)
		})
	}
	return contains(r.APIGroups, rbacv1.APIGroupAll, q.APIGroup) && r.matchesResource(q) && r.matchesNamespace(q.Namespace) &&
		(len(r.ResourceNames) == 0 || slices.Contains(r.ResourceNames, q.Name))
}

// matchesResource reports whether the rule has the resource of a request.
func (r Rule) matchesResource(q *Request) bool {
	if q.Subresource == "" {
		return contains(r.Resources, rbacv1.ResourceAll, q.Resource)
	}
	return slices.ContainsFunc(r.Resources, func(named string) bool {
		return named == rbacv1.ResourceAll || named == q.Resource+"/"+q.Subresource || named == "*/"+q.Subresource
	})
}

func (r Rule) matchesNamespace(namespace string) bool {
	if len(r.Namespaces) == 0 {
		return true
	}
	return namespace != "" && slices.ContainsFunc(r.Namespaces, func(glob string) bool {
		matched, err := path.Match(glob, namespace)
		return matched && err == nil
	})
}

func contains(list []string, all, one string) bool {
	return slices.Contains(list, all) || slices.Contains(list, one)
}
