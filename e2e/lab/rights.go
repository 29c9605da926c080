package lab

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/link"
)

// Manifests of the rights that principals and agents have where they look for everything under its default name.
const (
	principalRights = "manifests/principal-rbac.yaml"
	agentRights     = "manifests/agent-rbac.yaml"
	wideAgentRights = "manifests/agent-destination-rbac.yaml" // besides those
)

// claim says who wants to work on a cluster, and where.
type claim struct {
	user     string            // whom the API server takes the program for
	manifest string            // of its rights by default
	program  string            // who it is, such as "hub-principal-2"
	args     []string          // of its own, which may name another namespace and other Secrets
	secrets  map[string]string // flag that names a Secret => that Secret's name by default
	wide     []string          // manifests of which the user has nothing by default; what of them holds for the whole cluster
}

// agentClaim is an agent's.
func agentClaim(program string, args []string) claim {
	c := claim{
		user: AgentUser, manifest: agentRights, program: program, args: args,
		secrets: map[string]string{"--tls-secret-name": agentSecret, "--root-ca-secret-name": caSecret},
	}
	if argument(args, "--destination-based-mapping", "") == "true" {
		c.user, c.wide = WideAgentUser, []string{agentRights, wideAgentRights}
	}
	return c
}

// access gives a program its rights on a cluster and a way to the API server: a link, unless the lab is direct, and the path
// of a kubeconfig.
func (l *Lab) access(ctx context.Context, c *Cluster, claim claim) (*link.Link, string, error) {
	if err := c.entitle(ctx, claim); err != nil {
		return nil, "", err
	}
	cable, address, err := l.link(ctx, claim.program+" to API server", c.Address)
	if err != nil {
		return nil, "", err
	}
	kubeconfig, err := c.KubeconfigFor(claim.user, address, Namespace)
	return cable, kubeconfig, err
}

// entitle gives a program that was told of another namespace or other Secrets the rights of the manifest there, as an
// administrator would who adapts it. It makes the namespace too. Others have their rights already.
func (c *Cluster) entitle(ctx context.Context, claim claim) error {
	namespace := argument(claim.args, "--namespace", Namespace)
	renamed := make(map[string]string)
	for flag, name := range claim.secrets {
		if now := argument(claim.args, flag, name); now != name {
			renamed[name] = now
		}
	}
	if namespace == Namespace && len(renamed) == 0 && len(claim.wide) == 0 {
		return nil
	}
	if err := c.entitleWidely(ctx, claim); err != nil {
		return err
	}
	objects, err := parseManifest(claim.manifest)
	if err != nil {
		return err
	}
	if err := c.Apply(ctx, namespaceObject(namespace)); err != nil {
		return err
	}
	for _, object := range objects {
		if object.GetNamespace() == "" {
			continue // what is allowed on the whole cluster depends on no namespace
		}
		if err := adapt(object, namespace, claim, renamed); err != nil {
			return fmt.Errorf("%s: %w", claim.manifest, err)
		}
		if err := c.Apply(ctx, object); err != nil {
			return err
		}
	}
	return nil
}

// entitleWidely gives a program's user the rights on the whole cluster that it does not have by default.
func (c *Cluster) entitleWidely(ctx context.Context, claim claim) error {
	for _, manifest := range claim.wide {
		objects, err := parseManifest(manifest)
		if err != nil {
			return err
		}
		for _, object := range objects {
			if object.GetNamespace() != "" {
				continue
			}
			if object.GetKind() == "ClusterRoleBinding" {
				object.SetName(object.GetName() + "-of-" + claim.user)
				if err := bind(object, claim.user); err != nil {
					return fmt.Errorf("%s: %w", manifest, err)
				}
			}
			if err := c.Apply(ctx, object); err != nil {
				return err
			}
		}
	}
	return nil
}

// bind makes a binding be a user's.
func bind(object *unstructured.Unstructured, user string) error {
	subject := map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}
	return unstructured.SetNestedSlice(object.Object, []any{subject}, "subjects")
}

// adapt makes a Role or RoleBinding that of another program.
func adapt(object *unstructured.Unstructured, namespace string, claim claim, secrets map[string]string) error {
	object.SetNamespace(namespace)
	object.SetName(claim.program)
	if object.GetKind() == "RoleBinding" {
		if err := bind(object, claim.user); err != nil {
			return err
		}
		return unstructured.SetNestedField(object.Object, claim.program, "roleRef", "name")
	}
	rules, _, err := unstructured.NestedSlice(object.Object, "rules")
	if err != nil {
		return err
	}
	for _, rule := range rules {
		names, _ := rule.(map[string]any)["resourceNames"].([]any)
		for i, name := range names {
			if now, ok := secrets[fmt.Sprint(name)]; ok {
				names[i] = now
			}
		}
	}
	return unstructured.SetNestedSlice(object.Object, rules, "rules")
}

// argument is the value of a flag that is given as --flag=value: the last one wins.
func argument(args []string, flag, otherwise string) string {
	for _, arg := range args {
		if value, ok := strings.CutPrefix(arg, flag+"="); ok {
			otherwise = value
		}
	}
	return otherwise
}
