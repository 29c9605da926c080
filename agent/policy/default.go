package policy

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/agent/ownership"
)

// The API groups that the default rule names.
const (
	coreGroup   = ""
	eventsGroup = "events.k8s.io"
	argoGroup   = "argoproj.io"
)

// defaultRule allows what Argo CD's UI does to objects that belong to an Application.
type defaultRule struct {
	applications Applications
	namespace    string // of the agent
	client       cache.Getter
}

// decide returns a decision. The reason of a denial is completed by explain.
func (b defaultRule) decide(ctx context.Context, q *Request) (Decision, error) {
	switch {
	case !q.IsResourceRequest:
		return b.nonResource(q), nil
	case b.guarded(q.APIGroup, q.Resource, q.Namespace):
		return denied("it controls what Argo CD and the agent may do on this cluster"), nil
	case changes(q) && q.Namespace == b.namespace:
		// Where Argo CD manages itself, its own pods belong to an Application. But whoever opens a terminal in one, or decides
		// what runs in it, has the permissions of Argo CD or of the agent, and who deletes or scales them ends what holds this policy.
		return denied("nothing is changed or run in the namespace of Argo CD and the agent"), nil
	case changes(q) && decidesRights(q.APIGroup, q.Resource):
		return denied("objects that decide what others may do are only read"), nil
	case q.APIGroup == coreGroup && q.Resource == "nodes":
		return denied("nodes belong to no application"), nil
	case q.Verb == "list" || q.Verb == "watch":
		return b.collection(ctx, q)
	case q.Verb == "create" && q.Subresource == "":
		return b.create(ctx, q)
	case !objectVerb(q):
		return denied("this is not one of the things that Argo CD does to an application's objects"), nil
	default:
		return b.object(ctx, ownership.Object{
			Group: q.APIGroup, Resource: q.Resource, Namespace: namespaceOf(q), Name: q.Name,
		})
	}
}

// nonResource allows discovery and health checks.
func (defaultRule) nonResource(q *Request) Decision {
	if q.Verb == "get" || q.Verb == "head" {
		if q.Path == "/version" {
			return Decision{Allowed: true}
		}
		for _, open := range []string{"/api", "/apis", "/openapi", "/healthz", "/livez", "/readyz"} {
			if q.Path == open || strings.HasPrefix(q.Path, open+"/") {
				return Decision{Allowed: true}
			}
		}
	}
	return denied("only the discovery of APIs and the health of the API server are open to the hub")
}

// guarded reports whether an object determines what the hub may do here: Argo CD's own objects, and the Secrets and ConfigMaps
// in the agent's namespace, one of which is this policy. Applications can be children of Applications, so the hub could
// otherwise extend its own permissions. What the hub may change of them is synchronised instead.
func (b defaultRule) guarded(group, resource, namespace string) bool {
	switch group {
	case argoGroup:
		return resource == "applications" || resource == "appprojects" || resource == "applicationsets"
	case coreGroup:
		return namespace == b.namespace && (resource == "secrets" || resource == "configmaps")
	default:
		return false
	}
}

// changes reports whether a request can change something, or run code of the caller in a pod.
func changes(q *Request) bool {
	switch q.Verb {
	case "get", "list", "watch":
		return q.Subresource != "" && q.Subresource != "status" && q.Subresource != "scale" && q.Subresource != "log"
	default:
		return true
	}
}

// decidesRights reports whether objects of a resource decide what others may do on the cluster, what there is on it, or who is
// whom. Objects of the spoke's Applications among them are the spoke's and Argo CD's, by the API group, so that the resources that
// Kubernetes adds to these groups are closed too. The last two groups are OpenShift's.
func decidesRights(group, resource string) bool {
	switch group {
	case "rbac.authorization.k8s.io", "admissionregistration.k8s.io", "apiextensions.k8s.io", "apiregistration.k8s.io", "certificates.k8s.io",
		"authorization.openshift.io", "security.openshift.io":
		return true
	case coreGroup:
		return resource == "serviceaccounts"
	default:
		return false
	}
}

// objectVerb reports whether the default rule allows this verb on an object of an Application.
func objectVerb(q *Request) bool {
	var verbs []string
	switch q.Subresource {
	case "":
		verbs = []string{"get", "patch", "update", "delete"}
	case "status", "scale":
		verbs = []string{"get", "patch", "update"}
	case "log":
		verbs = []string{"get"}
	case "exec", "attach":
		verbs = []string{"get", "create"}
	}
	if pods := q.APIGroup == coreGroup && q.Resource == "pods"; !pods && slices.Contains([]string{"log", "exec", "attach"}, q.Subresource) {
		return false
	}
	return q.Name != "" && len(q.Parts) <= 3 && slices.Contains(verbs, q.Verb)
}

// namespaceOf returns the namespace of the object. A Namespace is cluster-scoped, although its path has a namespace.
func namespaceOf(q *Request) string {
	if q.APIGroup == coreGroup && q.Resource == "namespaces" {
		return ""
	}
	return q.Namespace
}

// object allows requests for an object that belongs to an Application. A cluster-scoped one must be in the Application's
// manifests: its children may serve the whole cluster.
func (b defaultRule) object(ctx context.Context, o ownership.Object) (Decision, error) {
	owner, err := b.applications.Lookup(ctx, o)
	switch {
	case err != nil:
		return Decision{}, err
	case owner.Application == "":
		return denied("the object belongs to no Argo CD application that this cluster shares with the hub"), nil
	case o.Namespace == "" && o.Name != "" && !owner.Root:
		return denied("the object is in no namespace, and not itself part of an application"), nil
	}
	return Decision{Allowed: true, Application: owner.Application}, nil
}

// collection allows lists and watches that are restricted to one object.
func (b defaultRule) collection(ctx context.Context, q *Request) (Decision, error) {
	switch {
	case q.Subresource != "":
		return denied("subresources are not listed"), nil
	case q.Resource == "events" && q.APIGroup == coreGroup:
		return b.events(ctx, q, "involvedObject.")
	case q.Resource == "events" && q.APIGroup == eventsGroup:
		return b.events(ctx, q, "regarding.")
	case q.Name == "":
		return denied("a list or watch must be restricted to one object by the fieldSelector metadata.name"), nil
	}
	return b.object(ctx, ownership.Object{
		Group: q.APIGroup, Resource: q.Resource, Namespace: namespaceOf(q), Name: q.Name,
	})
}

// events allows lists and watches of the events of one object.
func (b defaultRule) events(ctx context.Context, q *Request, about string) (Decision, error) {
	kind, name, uid := q.Fields[about+"kind"], q.Fields[about+"name"], q.Fields[about+"uid"]
	if uid != "" {
		return b.object(ctx, ownership.Object{UID: uid})
	}
	if kind == "" || name == "" {
		return denied("a list or watch of events must be restricted to one object by the fieldSelector %suid, or %[1]skind and %[1]sname", about), nil
	}
	namespace, said := q.Fields[about+"namespace"]
	if !said {
		namespace = q.Namespace
	}
	o := ownership.Object{Kind: kind, Namespace: namespace, Name: name, AnyGroup: true}
	if version := q.Fields[about+"apiVersion"]; version != "" {
		parsed, err := schema.ParseGroupVersion(version)
		if err != nil {
			return Decision{}, refuse("its fieldSelector names a version that cannot be read: %v", err)
		}
		o.Group, o.AnyGroup = parsed.Group, false
	}
	return b.object(ctx, o)
}

func denied(format string, a ...any) Decision {
	return Decision{Reason: fmt.Sprintf(format, a...)}
}
