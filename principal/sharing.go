package main

import (
	"fmt"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"
	typed "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/settings"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/argocd"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/facets"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/mapping"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/namespaces"
)

// sharingSettings are what an operator decides about what is shared with agents.
type sharingSettings struct {
	byDestination     bool
	allowed           []string
	selector          string
	createNamespaces  bool
	createPattern     string
	createLabels      []string
	mirrorLabels      []string
	mirrorAnnotations []string
	mirrorRoles       bool
}

func (s *sharingSettings) declare(set *settings.Set) {
	set.Bool(&s.byDestination, "destination-based-mapping", "ARGOCD_PRINCIPAL_DESTINATION_BASED_MAPPING", false,
		"an Application belongs to the agent that its spec.destination.name names, instead of to the one that its namespace is named after; "+
			"set it on the agents too")
	set.Strings(&s.allowed, "allowed-namespaces", "ARGOCD_PRINCIPAL_ALLOWED_NAMESPACES", nil,
		"namespaces whose Applications are shared with agents, as globs or /regular expressions/; "+
			"if empty, agents' own, or with destination-based mapping only Argo CD's", namespaces.Check)
	set.String(&s.selector, "label-selector", "ARGOCD_PRINCIPAL_LABEL_SELECTOR", "",
		"share only objects with these labels; set it on the agents too", facets.CheckSelector)
	set.Bool(&s.createNamespaces, "namespace-create-enable", "ARGOCD_PRINCIPAL_NAMESPACE_CREATE_ENABLE", false,
		"create the namespace of an autonomous agent when it has something to show")
	set.String(&s.createPattern, "namespace-create-pattern", "ARGOCD_PRINCIPAL_NAMESPACE_CREATE_PATTERN", "",
		"create only namespaces that match this regular expression", checkExpression)
	set.Strings(&s.createLabels, "namespace-create-labels", "ARGOCD_PRINCIPAL_NAMESPACE_CREATE_LABELS", nil,
		"labels, as key=value, of namespaces that are created", checkLabels)
	set.Strings(&s.mirrorLabels, "mirror-labels", "ARGOCD_PRINCIPAL_MIRROR_LABELS", nil,
		"show these labels of autonomous agents' Applications and AppProjects, as globs of keys; those that Argo's programs read are never shown",
		argocd.CheckKeys)
	set.Strings(&s.mirrorAnnotations, "mirror-annotations", "ARGOCD_PRINCIPAL_MIRROR_ANNOTATIONS", nil,
		"show these annotations of autonomous agents' Applications and AppProjects, besides external links, as globs of keys; "+
			"those that Argo's programs read are never shown", argocd.CheckKeys)
	set.Bool(&s.mirrorRoles, "mirror-project-roles", "ARGOCD_PRINCIPAL_MIRROR_PROJECT_ROLES", false,
		"show the roles of autonomous agents' AppProjects, which lets each agent decide who may use its Applications on the hub")
}

func checkExpression(text string) error {
	if _, err := regexp.Compile(text); err != nil {
		return fmt.Errorf("want a regular expression: %w", err)
	}
	return nil
}

func parseLabels(pairs []string) (labels.Set, error) {
	return labels.ConvertSelectorToLabelsMap(strings.Join(pairs, ","), field.WithPath(field.NewPath("labels")))
}

func checkLabels(pairs []string) error {
	if _, err := parseLabels(pairs); err != nil {
		return fmt.Errorf("want labels, as key=value: %w", err)
	}
	return nil
}

// mapping says which agent an Application belongs to.
func (s *sharingSettings) mapping(namespace string) mapping.Mapping {
	allowed, _ := namespaces.Parse(s.allowed) // which was checked
	if s.byDestination {
		return mapping.ByDestination{Hub: namespace, Allowed: allowed.Has}
	}
	if len(s.allowed) == 0 {
		return mapping.ByNamespace{}
	}
	return mapping.ByNamespace{Allowed: allowed.Has}
}

// mirrorRules say what is shown of what autonomous agents have.
func (s *sharingSettings) mirrorRules() (argocd.MirrorRules, error) {
	return argocd.NewMirrorRules(s.mirrorLabels, s.mirrorAnnotations, s.mirrorRoles)
}

// creator creates the namespaces of agents.
func (s *sharingSettings) creator(client typed.CoreV1Interface) namespaces.Creator {
	expression := regexp.MustCompile(s.createPattern) // which was checked
	created, _ := parseLabels(s.createLabels)         // likewise
	return namespaces.Creator{
		Client: client, Labels: created,
		Allowed: func(namespace string) bool { return s.createNamespaces && expression.MatchString(namespace) },
		Hint:    "create it on the hub, or let the principal: see --namespace-create-enable and --namespace-create-pattern",
	}
}
