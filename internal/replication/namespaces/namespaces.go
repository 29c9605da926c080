// Package namespaces says in which namespaces applications may be, and creates those that are missing.
package namespaces

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/dlclark/regexp2"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typed "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/kube"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/converge"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/glob"
)

// List is a list of namespaces: globs, and regular expressions between slashes, as in Argo CD's application.namespaces and in
// the sourceNamespaces of its projects. Both are matched by the packages that Argo CD uses, in the same
// versions.
type List []func(namespace string) bool

// matchTimeout bounds how long one regular expression is matched. These have lookarounds, so matching may backtrack for long.
const matchTimeout = time.Second

// Parse reads a list.
func Parse(patterns []string) (List, error) {
	var list List
	for _, text := range patterns {
		if expression, ok := enclosed(text); ok {
			compiled, err := regexp2.Compile(expression, regexp2.None)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", text, err)
			}
			compiled.MatchTimeout = matchTimeout
			list = append(list, func(namespace string) bool {
				matches, err := compiled.MatchString(namespace)
				return err == nil && matches
			})
			continue
		}
		compiled, err := glob.Compile(text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", text, err)
		}
		list = append(list, func(namespace string) bool {
			matches, _ := compiled.Match(namespace)
			return matches
		})
	}
	return list, nil
}

// Check reports what is wrong with a list.
func Check(patterns []string) error {
	if _, err := Parse(patterns); err != nil {
		return fmt.Errorf("want globs or /regular expressions/: %w", err)
	}
	return nil
}

// enclosed returns what is between two slashes, if that is anything: of no length, an expression would match everything.
func enclosed(text string) (string, bool) {
	if len(text) <= len("//") || !strings.HasPrefix(text, "/") || !strings.HasSuffix(text, "/") {
		return "", false
	}
	return text[1 : len(text)-1], true
}

// Has reports whether a namespace is in the list.
func (l List) Has(namespace string) bool {
	for _, matches := range l {
		if matches(namespace) {
			return true
		}
	}
	return false
}

// Creator creates namespaces.
type Creator struct {
	Client typed.CoreV1Interface
	// Allowed says which may be created; Hint is what errors say about others.
	Allowed func(namespace string) bool
	Hint    string
	Labels  map[string]string
}

// Create creates a namespace. That it is there is no error. Errors that a person has to see to wrap converge.ErrRefused.
func (c Creator) Create(ctx context.Context, namespace string) error {
	if !c.Allowed(namespace) {
		return fmt.Errorf("%w: %s", converge.ErrRefused, c.Hint)
	}
	forbidden, err := kube.Ask(ctx, c.Client.RESTClient(), func() error {
		_, err := c.Client.Namespaces().Create(ctx,
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace, Labels: c.Labels}}, metav1.CreateOptions{})
		return err
	})
	switch {
	case kube.IsForeign(err):
		return fmt.Errorf("create it: %w", err)
	case apierrors.IsAlreadyExists(err):
		return nil
	case forbidden, apierrors.IsInvalid(err):
		return fmt.Errorf("%w: create it: %w", converge.ErrRefused, err)
	case err != nil:
		return fmt.Errorf("create it: %w", err)
	}
	return nil
}
