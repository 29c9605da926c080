package argocd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/converge"
)

// Client reads and writes applications. Its errors wrap converge.ErrRefused when the API server would refuse the same
// request again.
type Client struct {
	rest      rest.Interface
	params    runtime.ParameterCodec
	namespace string
}

// NewClient returns a client for the applications of one namespace, or of all if that is empty.
func NewClient(config *rest.Config, namespace string) (*Client, error) {
	scheme := runtime.NewScheme()
	addToScheme(scheme)
	c := rest.CopyConfig(config)
	c.GroupVersion = &GroupVersion
	c.APIPath = "/apis"
	c.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	c.ContentType = runtime.ContentTypeJSON
	client, err := rest.RESTClientFor(c)
	if err != nil {
		return nil, fmt.Errorf("client for applications: %w", err)
	}
	return &Client{rest: client, params: runtime.NewParameterCodec(scheme), namespace: namespace}, nil
}

// List lists the applications.
func (c *Client) List(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	list := &ApplicationList{}
	err := c.rest.Get().NamespaceIfScoped(c.namespace, c.namespace != "").Resource("applications").
		VersionedParams(&o, c.params).Do(ctx).Into(list)
	return list, err
}

// Watch watches the applications.
func (c *Client) Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	o.Watch = true
	return c.rest.Get().NamespaceIfScoped(c.namespace, c.namespace != "").Resource("applications").
		VersionedParams(&o, c.params).Watch(ctx)
}

// Get reads one application from the API server.
func (c *Client) Get(ctx context.Context, id types.NamespacedName) (*Application, error) {
	a := &Application{}
	err := c.rest.Get().Namespace(id.Namespace).Resource("applications").Name(id.Name).Do(ctx).Into(a)
	return a, classify(err)
}

// Create creates an application and returns it as it was stored.
func (c *Client) Create(ctx context.Context, a *Application) (*Application, error) {
	a.TypeMeta = metav1.TypeMeta{APIVersion: GroupVersion.String(), Kind: "Application"}
	stored := &Application{}
	err := c.rest.Post().Namespace(a.Namespace).Resource("applications").Body(a).Do(ctx).Into(stored)
	return stored, classify(err)
}

// Patch changes an application by a JSON patch (RFC 6902), which applies only to the revision that it was made for, and
// returns it as it was stored. A conflict means that there is a newer revision.
func (c *Client) Patch(ctx context.Context, id types.NamespacedName, revision string, patch Patch) (*Application, error) {
	// The API server compares the resource version that results with the one that it has, and answers 409. A "test"
	// would do as well but is answered 422, which stands for an invalid object too.
	patch.Replace(revision, "metadata", "resourceVersion")
	body, err := json.Marshal(patch)
	if err != nil {
		return nil, fmt.Errorf("encode a patch: %w", err)
	}
	stored := &Application{}
	err = c.rest.Patch(types.JSONPatchType).Namespace(id.Namespace).Resource("applications").Name(id.Name).
		Body(body).Do(ctx).Into(stored)
	return stored, classify(err)
}

// Delete deletes one revision of an application, and returns it as it is while finalizers hold it, nil if it is gone. That
// it was not there is no error. A conflict means that there is a newer revision, which may have other finalizers.
func (c *Client) Delete(ctx context.Context, id types.NamespacedName, uid types.UID, revision string) (*Application, error) {
	propagation := metav1.DeletePropagationBackground // nothing but finalizers holds an application
	options := metav1.DeleteOptions{
		TypeMeta:          metav1.TypeMeta{APIVersion: "v1", Kind: "DeleteOptions"},
		Preconditions:     &metav1.Preconditions{UID: &uid, ResourceVersion: &revision},
		PropagationPolicy: &propagation,
	}
	body, err := json.Marshal(options)
	if err != nil {
		return nil, fmt.Errorf("encode delete options: %w", err)
	}
	result := c.rest.Delete().Namespace(id.Namespace).Resource("applications").Name(id.Name).
		Body(body).SetHeader("Content-Type", runtime.ContentTypeJSON).Do(ctx)
	answer, err := result.Raw()
	if err != nil {
		err = result.Error() // which says what the API server said; Raw's says only that it said something
	}
	err = classify(err)
	switch {
	case apierrors.IsNotFound(err) && !errors.Is(err, converge.ErrRefused):
		return nil, nil //nolint:nilnil // nothing is left, which is what was asked for
	case err != nil:
		return nil, err
	}
	left := &Application{}
	if err := json.Unmarshal(answer, left); err != nil {
		return nil, fmt.Errorf("decode the answer to a deletion: %w", err)
	}
	if left.Kind != "Application" || left.DeletionTimestamp == nil {
		return nil, nil //nolint:nilnil // as above
	}
	return left, nil
}

// classify marks the errors that the same request would meet again. What is forbidden may be allowed one day, and what an
// admission webhook denies it may admit; both need a person, who should be told rather than waited for.
func classify(err error) error {
	var status apierrors.APIStatus
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &status):
		return err // nobody answered
	case isDenial(status.Status().Message), apierrors.IsInvalid(err), apierrors.IsBadRequest(err),
		apierrors.IsForbidden(err), apierrors.IsRequestEntityTooLargeError(err), apierrors.IsMethodNotSupported(err),
		apierrors.IsNotAcceptable(err), apierrors.IsUnsupportedMediaType(err),
		strings.Contains(err.Error(), "request is too large"): // etcd's own limit comes as an internal error
		return fmt.Errorf("%w: %w", converge.ErrRefused, err)
	default:
		return err
	}
}

// isDenial reports whether a message is that of an API server whose admission webhook or policy denied something. The code
// tells nothing: that is for the webhook to choose, and may stand for a conflict or for an object that is not there. A
// webhook that did not answer has denied nothing, and its message reads otherwise.
func isDenial(message string) bool {
	return strings.Contains(message, `admission webhook "`) && strings.Contains(message, "denied the request") ||
		strings.Contains(message, "ValidatingAdmissionPolicy '") && strings.Contains(message, "denied request")
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
