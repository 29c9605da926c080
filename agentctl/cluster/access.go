package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// Version returns which version the API server is.
func (c *Client) Version(ctx context.Context) (string, error) {
	text, err := VersionOf(ctx, c.config)
	if err != nil {
		return "", fmt.Errorf("%s: %w", c, c.explain(err))
	}
	return text, nil
}

// VersionOf returns which version the API server of a configuration is.
func VersionOf(ctx context.Context, config *rest.Config) (string, error) {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return "", err
	}
	result := client.Discovery().RESTClient().Get().AbsPath("/version").Do(ctx)
	if err := result.Error(); err != nil { // Raw's error would have the code only, and not what the server says of it
		return "", err
	}
	answer, err := result.Raw()
	if err != nil {
		return "", err
	}
	var about version.Info
	if err := json.Unmarshal(answer, &about); err != nil {
		return "", fmt.Errorf("version: %w", err)
	}
	return "Kubernetes " + about.GitVersion, nil
}

// Allows reports whether the cluster lets a user do something. The caller needs the right to create SubjectAccessReviews.
func (c *Client) Allows(ctx context.Context, name string, what authorizationv1.ResourceAttributes) (bool, error) {
	client, err := kubernetes.NewForConfig(c.config)
	if err != nil {
		return false, err
	}
	groups := []string{"system:authenticated"}
	if account, ok := strings.CutPrefix(name, "system:serviceaccount:"); ok {
		namespace, _, _ := strings.Cut(account, ":")
		groups = append(groups, "system:serviceaccounts", "system:serviceaccounts:"+namespace)
	}
	review, err := client.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{User: name, Groups: groups, ResourceAttributes: &what},
	}, metav1.CreateOptions{})
	if err != nil {
		return false, fmt.Errorf("%s: whether %s may %s %s: %w", c, name, what.Verb, what.Resource, c.explain(err))
	}
	return review.Status.Allowed, nil
}

// Lacks returns what the user may not do of what is asked for, in words. The namespace is the client's, unless what is asked about has none. Who
// may not even ask is told so by what is done next.
func (c *Client) Lacks(ctx context.Context, all ...authorizationv1.ResourceAttributes) ([]string, error) {
	client, err := kubernetes.NewForConfig(c.config)
	if err != nil {
		return nil, err
	}
	var lacks []string
	for _, what := range all {
		if !clusterWide(what.Resource) {
			what.Namespace = c.Namespace
		}
		review, err := client.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
			Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &what},
		}, metav1.CreateOptions{})
		switch {
		case apierrors.IsForbidden(err):
		case err != nil:
			return nil, fmt.Errorf("%s: whether you may %s: %w", c, words(what), c.explain(err))
		case !review.Status.Allowed:
			lacks = append(lacks, words(what))
		}
	}
	return lacks, nil
}

// clusterWide reports whether objects of that kind are in no namespace.
func clusterWide(resource string) bool {
	return resource == "namespaces" || resource == "subjectaccessreviews"
}

// words says what somebody wants to do.
func words(what authorizationv1.ResourceAttributes) string {
	text := what.Verb + " " + what.Resource
	if what.Group != "" {
		text += "." + what.Group
	}
	if what.Subresource != "" {
		text += "/" + what.Subresource
	}
	if what.Name != "" {
		text += " " + what.Name
	}
	if what.Namespace != "" {
		text += " in namespace " + what.Namespace
	}
	return text
}

// HasServiceAccount reports whether there is a ServiceAccount.
func (c *Client) HasServiceAccount(ctx context.Context, name string) (bool, error) {
	_, err := c.core.ServiceAccounts(c.Namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("%s: ServiceAccount %s/%s: %w", c, c.Namespace, name, c.explain(err))
	}
	return true, nil
}
