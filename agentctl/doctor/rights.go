package doctor

import (
	"context"
	"fmt"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/agents"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/ca"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/checks"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/cluster"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/manifest"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/argocd"
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

// setup is what of an installation decides which rights are needed.
type setup struct{ autonomous, byDestination bool }

// setup finds out which mode the agent has, and how Applications are mapped: by the cluster Secret, and by the ConfigMaps of settings. What
// these do not say is as the programs have it by default.
func (o Options) setup(ctx context.Context) (found setup, err error) {
	if o.Hub != nil {
		if secret, err := agents.Find(ctx, o.Hub, o.Agent); err == nil {
			found.autonomous = secret.Labels[argocd.LabelMode] == autonomous
		}
		data, err := o.Hub.ConfigMapData(ctx, manifest.ParamsConfigMap)
		if err != nil {
			return found, err
		}
		found.byDestination = data["principal.destination-based-mapping"] == "true"
	}
	if o.Spoke != nil {
		data, err := o.Spoke.ConfigMapData(ctx, manifest.ParamsConfigMap)
		if err != nil {
			return found, err
		}
		found.autonomous = found.autonomous || data["agent.mode"] == autonomous
		found.byDestination = found.byDestination || data["agent.destination-based-mapping"] == "true"
	}
	found.byDestination = found.byDestination || o.ByDestination
	return found, nil
}

// autonomous is that mode.
const autonomous = "autonomous"

// principalRights are those without which a principal does not serve agents of that kind.
func principalRights(s setup) program {
	projects := follow()
	if s.autonomous {
		projects = all()
	}
	return program{"principal", "argocd-agent-principal", func(o Options) string { return o.PrincipalUser }, []right{
		{group: argoproj, resource: "applications", everywhere: true, verbs: all()},
		{group: argoproj, resource: "appprojects", verbs: projects},
		{resource: "secrets", verbs: follow()},
		{resource: "configmaps", name: "argocd-agent-tls-blocklist", verbs: follow()},
		{resource: "configmaps", name: "argocd-agent-deletion-guard", verbs: follow()},
		{resource: "configmaps", name: "argocd-gpg-keys-cm", verbs: follow()},
		{resource: "configmaps", name: "argocd-agent-principal-identity", verbs: []string{"get"}},
		{resource: "namespaces", everywhere: true, verbs: []string{"get"}},
		{resource: "events", everywhere: true, verbs: []string{"create"}},
	}}
}

// agentRights are those without which an agent of that kind does not serve its hub.
func agentRights(s setup) program {
	var rights []right
	if s.autonomous {
		rights = append(rights,
			right{group: argoproj, resource: "applications", everywhere: s.byDestination, verbs: []string{"get", "list", "watch", "patch"}},
			right{group: argoproj, resource: "appprojects", verbs: follow()},
			right{resource: "secrets", name: ca.AgentSecret, verbs: follow()},
			right{resource: "secrets", name: ca.SecretName, verbs: follow()})
	} else {
		rights = append(rights,
			right{group: argoproj, resource: "applications", everywhere: s.byDestination, verbs: all()},
			right{group: argoproj, resource: "appprojects", verbs: all()},
			right{resource: "secrets", verbs: all()},
			right{resource: "configmaps", name: "argocd-gpg-keys-cm", verbs: []string{"list", "watch", "get", "patch"}})
	}
	rights = append(rights,
		right{resource: "configmaps", name: "argocd-agent-deletion-guard", verbs: follow()},
		right{resource: "configmaps", name: "argocd-agent-policy", verbs: follow()},
		right{resource: "events", everywhere: s.byDestination, verbs: []string{"create"}})
	return program{"agent", "argocd-agent-agent", func(o Options) string { return o.AgentUser }, rights}
}

// rights asks the API server for each right of a program.
func (o Options) rights(ctx context.Context, c *cluster.Client, of func(setup) program) []checks.Check {
	kind, err := o.setup(ctx)
	p := of(kind)
	if err != nil {
		return []checks.Check{checks.Skip("rights of the "+p.name+" on "+c.String(), err.Error())}
	}
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
