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
	user           func(*walk) string
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

// setupRights are what setup needs on a cluster.
func setupRights(hub bool) []authorizationv1.ResourceAttributes {
	needs := []authorizationv1.ResourceAttributes{{Verb: "get", Resource: "configmaps", Name: paramsConfigMap}}
	if hub {
		needs = append(needs, listSecrets())
	}
	return needs
}

// setup finds out which mode the agent has, and how Applications are mapped: by the cluster Secret, and by the ConfigMaps of settings. What
// these do not say is as the programs have it by default.
func (w *walk) setup(ctx context.Context) (found setup, err error) {
	if w.Hub != nil {
		if found.autonomous, err = w.isAutonomous(ctx); err != nil {
			return found, err
		}
		data, err := w.Hub.ConfigMapData(ctx, paramsConfigMap)
		if err != nil {
			return found, err
		}
		found.byDestination = data[manifest.HubByDestination] == "true"
	}
	if w.Spoke != nil {
		data, err := w.Spoke.ConfigMapData(ctx, paramsConfigMap)
		if err != nil {
			return found, err
		}
		found.autonomous = found.autonomous || data[manifest.ModeKey] == autonomous
		found.byDestination = found.byDestination || data[manifest.ByDestination] == "true"
	}
	found.byDestination = found.byDestination || w.ByDestination
	return found, nil
}

// isAutonomous reports whether the cluster Secret says so of the agent, or of any if it is about none.
func (w *walk) isAutonomous(ctx context.Context) (bool, error) {
	if w.Agent == "" {
		found, err := w.Hub.List(ctx, argocd.ClusterSelector+","+argocd.LabelMode+"="+autonomous)
		return len(found) > 0, err
	}
	secret, err := agents.Find(ctx, w.Hub, w.Agent)
	return err == nil && secret.Labels[argocd.LabelMode] == autonomous, nil // that there is none is said by another check
}

// autonomous is that mode.
const autonomous = "autonomous"

// principalRights are those without which a principal does not serve agents of that kind.
func principalRights(s setup) program {
	projects := follow()
	if s.autonomous {
		projects = all()
	}
	return program{"principal", "argocd-agent-principal", func(w *walk) string { return w.PrincipalUser }, []right{
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
	return program{"agent", "argocd-agent-agent", func(w *walk) string { return w.AgentUser }, rights}
}

// rights asks the API server for each right of a program.
func (w *walk) rights(ctx context.Context, c *cluster.Client, of func(setup) program) []checks.Check {
	name := "rights of the " + of(setup{}).name + " on " + c.String()
	for _, one := range []*cluster.Client{w.Hub, w.Spoke} {
		if one == nil {
			continue
		}
		if forbidden, lacks := w.lacking(ctx, name, one, setupRights(one == w.Hub)...); lacks {
			return []checks.Check{forbidden}
		}
	}
	kind, err := w.setup(ctx)
	p := of(kind)
	if err != nil {
		return []checks.Check{checks.Skip(name, err.Error())}
	}
	user := p.user(w)
	needs := []authorizationv1.ResourceAttributes{{Verb: "create", Group: authorizationv1.GroupName, Resource: "subjectaccessreviews"}}
	if user == "" {
		needs = append(needs, authorizationv1.ResourceAttributes{Verb: "get", Resource: "serviceaccounts", Name: p.serviceAccount})
	}
	if forbidden, lacks := w.lacking(ctx, name, c, needs...); lacks {
		return []checks.Check{forbidden}
	}
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
