package facets

import (
	"context"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/argocd"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/converge"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/mapping"
)

// The halves of the facets of applications, which Hub.Share and Spoke.Share put together. Tests look at each by itself.
type (
	ApplicationSource  = applicationSource
	ApplicationReplica = applicationReplica
	IntentSource       = intentSource
	IntentReplica      = intentReplica
	StatusSource       = statusSource
	StatusReplica      = statusReplica
)

// NewApplicationReplica returns the half of the application facet on the side that has replica objects.
func NewApplicationReplica(s Side, k AdoptionPolicy) ApplicationReplica {
	return newApplicationReplica(s, k)
}

// NewStatusReplica returns the hub's half of the application-status facet, which reports nothing.
func NewStatusReplica(s Side) StatusReplica {
	return statusReplica{Side: s, refused: func(context.Context, *argocd.App, string) {}}
}

// NewIntentReplica returns the spoke's half of the application-intent facet.
func NewIntentReplica(s Side) IntentReplica { return newIntentReplica(s) }

// HubSide is the hub's applications as they are shared with a managed agent.
func HubSide(a Applications, agent string) Side {
	return hubSide(a, mapping.ByNamespace{}, agent, true)
}

// SpokeSide is the applications of a managed spoke.
func SpokeSide(a Applications, m mapping.Mapping) Side { return spokeSide(a, m, false) }

// Saw passes a change of an application to the replica of intents.
func Saw(r IntentReplica, key converge.Key, app *argocd.App) { r.noteStarted(key, app) }

// SelectedBy returns the side as it is when objects are shared by their labels.
func SelectedBy(s Side, selector labels.Selector) Side {
	s.selector = selector
	return s
}
