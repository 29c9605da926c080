package facets

import (
	"fmt"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/argocd"
)

// Selector returns what selects the objects that are shared: those with certain labels, or all if text is empty, but for
// those that somebody wants ignored.
func Selector(text string) (labels.Selector, error) {
	selector, err := labels.Parse(text)
	if err != nil {
		return nil, err
	}
	ignored, err := labels.Parse(argocd.LabelIgnore + "!=true")
	if err != nil {
		return nil, fmt.Errorf("the label of what is ignored: %w", err)
	}
	requirements, _ := ignored.Requirements()
	return selector.Add(requirements...), nil
}

// CheckSelector reports what is wrong with a label selector.
func CheckSelector(text string) error {
	if _, err := labels.Parse(text); err != nil {
		return fmt.Errorf("want a label selector, such as team=blue,env!=test: %w", err)
	}
	return nil
}

// SameSelector returns a label selector in the form that is the same whenever it is equal.
func SameSelector(text string) string {
	selector, err := labels.Parse(text)
	if err != nil {
		return text
	}
	return selector.String()
}
