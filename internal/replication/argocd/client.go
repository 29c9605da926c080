package argocd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	selectors "k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/kube"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/converge"
)

// Client reads and writes the objects of one kind, which decode to R. Its errors wrap converge.ErrRefused when the API
// server would refuse the same request again.
type Client[R Raw] struct {
	// List and Watch ask for the objects in scope.
	List  kube.ListFunc
	Watch kube.WatchFunc

	resource Resource[R]
	rest     rest.Interface
	labels   string // of what is in scope
}

// Scope says which objects of a kind are followed. The zero Scope is all of them.
type Scope struct {
	Namespace string // all, if it is empty
	Labels    string // a label selector
	Fields    string // a field selector
}

// NewClient returns a client for the objects of a kind in a scope. What it reads, writes or deletes by name it does
// whatever their labels and fields are.
func NewClient[R Raw](config *rest.Config, r Resource[R], s Scope) (*Client[R], error) {
	scheme := runtime.NewScheme()
	scheme.AddKnownTypeWithName(r.Version.WithKind(r.Kind), r.New())
	scheme.AddKnownTypeWithName(r.Version.WithKind(r.Kind+"List"), r.NewList())
	metav1.AddToGroupVersion(scheme, r.Version)
	c := rest.CopyConfig(config)
	c.GroupVersion = &r.Version
	c.APIPath = "/apis"
	if r.Version.Group == "" {
		c.APIPath = "/api"
	}
	c.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	c.ContentType = runtime.ContentTypeJSON
	client, err := rest.RESTClientFor(c)
	if err != nil {
		return nil, fmt.Errorf("client for %s: %w", r.Plural, err)
	}
	scoped := cache.NewFilteredListWatchFromClient(client, r.Plural, s.Namespace, func(o *metav1.ListOptions) {
		o.LabelSelector, o.FieldSelector = s.Labels, s.Fields
	})
	return &Client[R]{List: scoped.ListWithContextFunc, Watch: scoped.WatchFuncWithContext, resource: r, rest: client, labels: s.Labels}, nil
}

// Kind returns what the objects are called.
func (c *Client[R]) Kind() string { return c.resource.Kind }

// named has a request concern one object.
func (c *Client[R]) named(r *rest.Request, id types.NamespacedName) *rest.Request {
	return r.Namespace(id.Namespace).Resource(c.resource.Plural).Name(id.Name)
}

// Get reads one object from the API server.
func (c *Client[R]) Get(ctx context.Context, id types.NamespacedName) (R, error) {
	object := c.resource.New()
	err := c.ask(ctx, func() error { return c.named(c.rest.Get(), id).Do(ctx).Into(object) })
	return object, err
}

// Find reads one object in scope from the API server, the zero R if there is none. It needs the right to list, by name, and no other.
func (c *Client[R]) Find(ctx context.Context, id types.NamespacedName) (R, error) {
	var none R
	list := c.resource.NewList()
	only := metav1.ListOptions{LabelSelector: c.labels, FieldSelector: selectors.OneTermEqualSelector(metav1.ObjectNameField, id.Name).String()}
	err := c.ask(ctx, func() error {
		return c.rest.Get().Namespace(id.Namespace).Resource(c.resource.Plural).VersionedParams(&only, metav1.ParameterCodec).Do(ctx).Into(list)
	})
	if err != nil {
		return none, err
	}
	found := none
	err = meta.EachListItem(list, func(item runtime.Object) error {
		object, ok := item.(R)
		if !ok {
			return errForeign
		}
		found = object
		return nil
	})
	return found, err
}

// Create creates an object and returns it as it was stored.
func (c *Client[R]) Create(ctx context.Context, object R) (R, error) {
	object.GetObjectKind().SetGroupVersionKind(c.resource.Version.WithKind(c.resource.Kind))
	stored := c.resource.New()
	err := c.ask(ctx, func() error {
		return c.rest.Post().Namespace(object.GetNamespace()).Resource(c.resource.Plural).Body(object).Do(ctx).Into(stored)
	})
	return stored, err
}

// Patch changes an object by a JSON patch (RFC 6902), which applies only to the revision that it was made for, and
// returns it as it was stored. A conflict means that there is a newer revision.
func (c *Client[R]) Patch(ctx context.Context, id types.NamespacedName, revision string, patch Patch) (R, error) {
	// The API server compares the resource version that results with the one that it has, and answers 409. A "test"
	// would do as well but is answered 422, which stands for an invalid object too.
	patch.Replace(revision, "metadata", "resourceVersion")
	body, err := json.Marshal(patch)
	if err != nil {
		var none R
		return none, fmt.Errorf("encode a patch: %w", err)
	}
	stored := c.resource.New()
	err = c.ask(ctx, func() error { return c.named(c.rest.Patch(types.JSONPatchType), id).Body(body).Do(ctx).Into(stored) })
	return stored, err
}

// Delete deletes one revision of an object, and returns it as it is while finalizers hold it, the zero R if it is gone. That
// it was not there is no error. A conflict means that there is a newer revision, which may have other finalizers.
func (c *Client[R]) Delete(ctx context.Context, id types.NamespacedName, uid types.UID, revision string) (R, error) {
	var none R
	propagation := metav1.DeletePropagationBackground // nothing but finalizers holds an object of these kinds
	options := metav1.DeleteOptions{
		TypeMeta:          metav1.TypeMeta{APIVersion: "v1", Kind: "DeleteOptions"},
		Preconditions:     &metav1.Preconditions{UID: &uid, ResourceVersion: &revision},
		PropagationPolicy: &propagation,
	}
	body, err := json.Marshal(options)
	if err != nil {
		return none, fmt.Errorf("encode delete options: %w", err)
	}
	var answer []byte
	err = c.ask(ctx, func() error {
		result := c.named(c.rest.Delete(), id).Body(body).SetHeader("Content-Type", runtime.ContentTypeJSON).Do(ctx)
		var err error
		if answer, err = result.Raw(); err != nil {
			return result.Error() // which says what the API server said; Raw's says only that it said something
		}
		return nil
	})
	switch {
	case apierrors.IsNotFound(err) && !errors.Is(err, converge.ErrRefused):
		return none, nil // nothing is left, which is what was asked for
	case err != nil:
		return none, err
	}
	left := c.resource.New()
	if err := json.Unmarshal(answer, left); err != nil {
		return none, fmt.Errorf("decode the answer to a deletion: %w", err)
	}
	var done metav1.Status
	switch kind := left.GetObjectKind().GroupVersionKind().Kind; {
	case kind == c.resource.Kind && left.GetDeletionTimestamp() != nil:
		return left, nil
	case kind == c.resource.Kind, kind == "Status" && json.Unmarshal(answer, &done) == nil && done.Status == metav1.StatusSuccess:
		return none, nil
	}
	return none, errForeign
}

// ask makes a request, marks the errors that the same would meet again, and withholds what may quote a Secret. What is no answer
// to the request it strips of its code, so that nobody takes it for one.
func (c *Client[R]) ask(ctx context.Context, request func() error) error {
	forbidden, err := kube.Ask(ctx, c.rest, request)
	refused, foreign, undecided := isForGood(err, forbidden), kube.IsForeign(err), isUndecided(err)
	if c.resource.Confidential {
		err = withhold(err)
	}
	switch {
	case refused:
		return fmt.Errorf("%w: %w", converge.ErrRefused, err)
	case foreign:
		return fmt.Errorf("%w, or of an API server that does not know %s: %s", errForeign, c.resource.Plural, err.Error())
	case undecided:
		return errors.New(err.Error())
	}
	return err
}

// errForeign means that nothing is known of what became of a request.
var errForeign = errors.New("no answer of Kubernetes' API, but of something before it")

// isForGood reports whether the same request would meet an error again, given whether it is forbidden. What is forbidden may be
// allowed one day, and what an admission webhook denies it may admit; both need a person, who should see the error at once.
func isForGood(err error, forbidden bool) bool {
	var status apierrors.APIStatus
	if err == nil || !errors.As(err, &status) {
		return false // nobody answered
	}
	switch {
	case apierrors.IsRequestEntityTooLargeError(err):
		return true // whoever says so
	case kube.IsForeign(err), isUndecided(err):
		return false
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return false // that is forbidden for as long as it takes
	}
	return forbidden || isDenial(status.Status().Message) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) ||
		apierrors.IsMethodNotSupported(err) || apierrors.IsNotAcceptable(err) || apierrors.IsUnsupportedMediaType(err) ||
		strings.Contains(err.Error(), "request is too large") // etcd's own limit comes as an internal error
}

// webhookPrefix begins what an API server says when an admission webhook denied something; its name follows.
const webhookPrefix = `admission webhook "`

// isDenial reports whether a message is that of an API server whose admission webhook or policy denied something. The code
// tells nothing: that is for the webhook to choose, and may stand for a conflict or for an object that is not there. A
// webhook that did not answer has denied nothing, and its message reads otherwise.
func isDenial(message string) bool {
	return strings.Contains(message, webhookPrefix) && strings.Contains(message, "denied the request") ||
		strings.Contains(message, "ValidatingAdmissionPolicy '") && strings.Contains(message, "denied request")
}

// isUndecided reports whether an error is that of an admission webhook which could not decide: it says so by one of its own errors,
// or by having too much to do. The API server makes the words of a denial of that, whatever the webhook says.
func isUndecided(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || !isDenial(status.Status().Message) {
		return false
	}
	code := status.Status().Code
	return code >= http.StatusInternalServerError || code == http.StatusTooManyRequests
}

// IsConflict reports whether a request failed because the object is not, or no longer, as the one who made it believed.
func IsConflict(err error) bool {
	return !errors.Is(err, converge.ErrRefused) &&
		(apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err))
}

// Patch is a JSON patch (RFC 6902) under construction.
type Patch []operation

type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

// Replace sets what is at a path, which exists or whose parent does.
func (p *Patch) Replace(value any, path ...string) {
	*p = append(*p, operation{Op: "add", Path: pointer(path), Value: value})
}

// Remove removes what is at a path, which exists.
func (p *Patch) Remove(path ...string) {
	*p = append(*p, operation{Op: "remove", Path: pointer(path)})
}

// pointer writes a path as a JSON pointer (RFC 6901).
func pointer(path []string) string {
	var b strings.Builder
	for _, p := range path {
		b.WriteByte('/')
		b.WriteString(strings.ReplaceAll(strings.ReplaceAll(p, "~", "~0"), "/", "~1"))
	}
	return b.String()
}
