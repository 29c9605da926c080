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
)

// claim says who wants to work on a cluster, and where.
type claim struct {
	user     string            // whom the API server takes the program for
	manifest string            // of its rights by default
	program  string            // who it is, such as "hub-principal-2"
	args     []string          // of its own, which may name another namespace and other Secrets
	secrets  map[string]string // flag that names a Secret => that Secret's name by default
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
	if namespace == Namespace && len(renamed) == 0 {
		return nil
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
		if err := adapt(object, namespace, claim.program, renamed); err != nil {
			return fmt.Errorf("%s: %w", claim.manifest, err)
		}
		if err := c.Apply(ctx, object); err != nil {
			return err
		}
	}
	return nil
}

// adapt makes a Role or RoleBinding that of another program.
func adapt(object *unstructured.Unstructured, namespace, program string, secrets map[string]string) error {
	object.SetNamespace(namespace)
	object.SetName(program)
	if object.GetKind() == "RoleBinding" {
		return unstructured.SetNestedField(object.Object, program, "roleRef", "name")
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
