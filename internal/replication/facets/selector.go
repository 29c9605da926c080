package facets

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/argocd"
)

// ParseSelector returns what selects the objects that are shared: those with certain labels, or all if text is empty, but for
// those that somebody wants ignored.
func ParseSelector(text string) (labels.Selector, error) {
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

// selects reports whether a selector, nil for all, selects an object.
func selects(selector labels.Selector, object *argocd.Head) bool {
	return selector == nil || selector.Matches(labels.Set(object.Labels))
}

// CheckSelector reports what is wrong with a label selector.
func CheckSelector(text string) error {
	if _, err := labels.Parse(text); err != nil {
		return fmt.Errorf("want a label selector, such as team=blue,env!=test: %w", err)
	}
	return nil
}

// CanonicalSelector returns a label selector in a form that does not depend on how it is written: in any order, and with =, == or
// "in" for one value. One that does not parse stays as it is.
func CanonicalSelector(text string) string {
	selector, err := labels.Parse(text)
	if err != nil {
		return text
	}
	requirements, _ := selector.Requirements()
	parts := make([]string, 0, len(requirements))
	for _, r := range requirements {
		operator := r.Operator()
		switch operator {
		case selection.Equals, selection.DoubleEquals:
			operator = selection.In
		case selection.NotEquals:
			operator = selection.NotIn
		default:
		}
		if same, err := labels.NewRequirement(r.Key(), operator, r.Values().List()); err == nil {
			r = *same
		}
		parts = append(parts, r.String())
	}
	slices.Sort(parts)
	return strings.Join(slices.Compact(parts), ",")
}
