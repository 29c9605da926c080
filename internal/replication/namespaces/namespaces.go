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
type List []matcher

// matcher reports whether a namespace matches, with an error where it would take too long to tell.
type matcher func(namespace string) (bool, error)

// matchTimeout bounds how long a list is matched with regular expressions that match nothing in that time. They have lookarounds, so
// matching may backtrack for long. maxExpression is how long each may be.
const (
	matchTimeout  = time.Second
	maxExpression = 4096
)

var errTooLong = fmt.Errorf("want a regular expression of at most %d bytes", maxExpression)

// Parse reads a list.
func Parse(patterns []string) (List, error) {
	var list List
	for _, text := range patterns {
		if expression, ok := enclosed(text); ok {
			if len(expression) > maxExpression {
				return nil, fmt.Errorf("%.100s: %w", text, errTooLong)
			}
			compiled, err := regexp2.Compile(expression, regexp2.None)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", text, err)
			}
			compiled.MatchTimeout = matchTimeout
			list = append(list, compiled.MatchString)
			continue
		}
		compiled, err := glob.Compile(text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", text, err)
		}
		list = append(list, func(namespace string) (bool, error) {
			matches, _ := compiled.Match(namespace)
			return matches, nil
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

// Has reports whether a namespace is in the list. Once one of its expressions takes too long, no other is tried: a thousand of these
// would take a thousand times as long.
func (l List) Has(namespace string) bool {
	for _, match := range l {
		matches, err := match(namespace)
		if matches || err != nil {
			return matches
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
