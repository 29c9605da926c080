package doctor

import (
	"context"
	"fmt"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/checks"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/cluster"
)

// program is one of the programs, with the rights that it needs.
type program struct {
	name           string
	serviceAccount string
	user           func(Options) string
	rights         []right
}

// right is what a program may do with objects of its own namespace, or of all.
type right struct {
	group, resource, name string
	everywhere            bool
	verbs                 []string
}

// Some verbs.
func all() []string    { return []string{"get", "list", "watch", "create", "patch", "delete"} }
func follow() []string { return []string{"list", "watch"} }

const argoproj = "argoproj.io"

// principalRights are those without which a principal does not serve managed agents.
func principalRights() program {
	return program{"principal", "argocd-agent-principal", func(o Options) string { return o.PrincipalUser }, []right{
		{group: argoproj, resource: "applications", everywhere: true, verbs: all()},
		{group: argoproj, resource: "appprojects", verbs: follow()},
		{resource: "secrets", verbs: follow()},
		{resource: "configmaps", name: "argocd-agent-tls-blocklist", verbs: follow()},
		{resource: "configmaps", name: "argocd-agent-deletion-guard", verbs: follow()},
		{resource: "configmaps", name: "argocd-gpg-keys-cm", verbs: follow()},
		{resource: "configmaps", name: "argocd-agent-principal-identity", verbs: []string{"get"}},
		{resource: "namespaces", everywhere: true, verbs: []string{"get"}},
		{resource: "events", everywhere: true, verbs: []string{"create"}},
	}}
}

// agentRights are those without which a managed agent does not serve its hub.
func agentRights() program {
	return program{"agent", "argocd-agent-agent", func(o Options) string { return o.AgentUser }, []right{
		{group: argoproj, resource: "applications", verbs: all()},
		{group: argoproj, resource: "appprojects", verbs: all()},
		{resource: "secrets", verbs: all()},
		{resource: "configmaps", name: "argocd-agent-deletion-guard", verbs: follow()},
		{resource: "configmaps", name: "argocd-agent-policy", verbs: follow()},
		{resource: "configmaps", name: "argocd-gpg-keys-cm", verbs: []string{"list", "watch", "get", "patch"}},
		{resource: "events", verbs: []string{"create"}},
	}}
}

// rights asks the API server for each right of a program.
func (o Options) rights(ctx context.Context, c *cluster.Client, p program) []checks.Check {
	name := "rights of the " + p.name + " on " + c.String()
	user := p.user(o)
	if user == "" {
		there, err := c.HasServiceAccount(ctx, p.serviceAccount)
		if err != nil {
			return []checks.Check{checks.Skip(name, err.Error())}
		}
		if !there {
			return []checks.Check{checks.Skip(name, fmt.Sprintf("there is no ServiceAccount %s/%s: give --%s-user, the user by which the API server knows the program",
				c.Namespace, p.serviceAccount, p.name))}
		}
		user = "system:serviceaccount:" + c.Namespace + ":" + p.serviceAccount
	}
	var missing []string
	for _, r := range p.rights {
		lacks, err := r.missing(ctx, c, user)
		if err != nil {
			return []checks.Check{checks.Skip(name, err.Error())}
		}
		if len(lacks) > 0 {
			missing = append(missing, fmt.Sprintf("%s may not %s %s: add that to its Role or ClusterRole", user, strings.Join(lacks, ", "), r))
		}
	}
	return []checks.Check{checks.Of(name, user, missing...)}
}

// String says in words what the right is about.
func (r right) String() string {
	text := r.resource
	if r.group != "" {
		text += "." + r.group
	}
	if r.name != "" {
		text += " " + r.name
	}
	if r.everywhere {
		text += " in all namespaces"
	}
	return text
}

// missing returns the verbs that a user has not.
func (r right) missing(ctx context.Context, c *cluster.Client, user string) ([]string, error) {
	namespace := c.Namespace
	if r.everywhere {
		namespace = ""
	}
	var lacks []string
	for _, verb := range r.verbs {
		allowed, err := c.Allows(ctx, user, authorizationv1.ResourceAttributes{
			Namespace: namespace, Verb: verb, Group: r.group, Resource: r.resource, Name: r.name,
		})
		if err != nil {
			return nil, err
		}
		if !allowed {
			lacks = append(lacks, verb)
		}
	}
	return lacks, nil
}
