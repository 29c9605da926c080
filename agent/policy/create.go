package policy

import (
	"context"
	"fmt"
	"net/http"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/agent/ownership"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/strictjson"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/apihttp"
)

// create allows what Argo CD's own actions create, such as a Job from a CronJob: an object with one owner, which belongs to an
// Application and is in the same namespace, and equal to what the action makes of that owner. Anything else would let the hub
// run what it likes by the rights of whatever service account it likes.
func (b defaultRule) create(ctx context.Context, q *Request) (Decision, error) {
	asked := schema.GroupResource{Group: q.APIGroup, Resource: q.Resource}
	kinds := slices.DeleteFunc(derivations(), func(d derivation) bool { return d.resource != asked })
	switch {
	case q.Namespace == "" || len(kinds) == 0:
		return denied("only the Jobs and Workflows can be created that actions of Argo CD create"), nil
	case q.MediaType != "" && q.MediaType != runtime.ContentTypeJSON:
		return denied("what is created must be JSON, so that it can be compared with its owner"), nil
	}
	object, owners, err := readObject(q)
	if err != nil {
		return Decision{}, err
	}
	if len(owners) != 1 {
		return denied("it must have one ownerReference, to the object that it is created from"), nil
	}
	version, err := schema.ParseGroupVersion(owners[0].APIVersion)
	kind := schema.GroupKind{Group: version.Group, Kind: owners[0].Kind}
	from := slices.IndexFunc(kinds, func(d derivation) bool { return d.owner == kind })
	if err != nil || from < 0 || owners[0].UID == "" || owners[0].Name == "" {
		return denied("no action of Argo CD creates one from a %.80s", kind.String()), nil //nolint:nilerr // a version that is none is of no such kind
	}
	decision, err := b.object(ctx, ownership.Object{
		Group: kind.Group, Kind: kind.Kind, Namespace: q.Namespace, Name: owners[0].Name, UID: string(owners[0].UID),
	})
	if err != nil || !decision.Allowed {
		return decision, err
	}
	owner, err := b.read(ctx, version.WithResource(kinds[from].owners), q.Namespace, owners[0].Name)
	switch {
	case apierrors.IsNotFound(err):
		return denied("its owner does not exist any more"), nil
	case err != nil:
		return Decision{}, fmt.Errorf("read the owner of what is created: %w", err)
	}
	if err := CheckDerived(object, owner); err != nil {
		return denied("it must be what the action of Argo CD creates from its owner, as that is now: %v", err), nil
	}
	return decision, nil
}

// read reads an object of the API server.
func (b defaultRule) read(ctx context.Context, resource schema.GroupVersionResource, namespace, name string) (map[string]any, error) {
	if !plainName(resource.Version) {
		return nil, fmt.Errorf("%.80q is no version", resource.Version)
	}
	text, err := b.client.Get().AbsPath("/apis", resource.Group, resource.Version).Namespace(namespace).Resource(resource.Resource).Name(name).
		SetHeader("Accept", runtime.ContentTypeJSON).Do(ctx).Raw()
	if err != nil {
		return nil, err
	}
	var object map[string]any
	return object, strictjson.Fields(text, &object)
}

// readObject returns the object in the body, and its owners, parsed as the API server does: field names are case-sensitive, and
// duplicate fields are an error.
func readObject(q *Request) (map[string]any, []metav1.OwnerReference, error) {
	body, err := q.Body()
	if err != nil {
		return nil, nil, err
	}
	var (
		whole  map[string]any
		object struct {
			Metadata struct {
				OwnerReferences []metav1.OwnerReference `json:"ownerReferences"`
			} `json:"metadata"`
		}
	)
	err = strictjson.Unmarshal(body, &whole)
	if err == nil {
		err = strictjson.Fields(body, &object)
	}
	if err != nil {
		return nil, nil, apihttp.Errorf(http.StatusBadRequest, "the agent cannot read the object that is to be created: %v", err)
	}
	return whole, object.Metadata.OwnerReferences, nil
}
