// Package comparison compares an agent's cluster with the hub, object by object, by package verify, and tells which differences are
// somebody's business.
package comparison

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/agents"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/ca"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/cluster"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/converge"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/facets"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/mapping"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/verify"
)

// Options say how hub and agent share, which no object says.
type Options struct {
	ByDestination bool
	Selector      labels.Selector
	// Wait is how long the two may take to become equal: what changes while they are compared is under way.
	Wait time.Duration
}

// Difference is an object that is not the same on both sides.
type Difference struct {
	Facet converge.Facet `json:"facet"`
	Key   converge.Key   `json:"key"`
	What  string         `json:"what"`
}

// Result is how an agent's cluster compares.
type Result struct {
	Agent       string       `json:"agent"`
	Mode        string       `json:"mode"`
	Differences []Difference `json:"differences"`
	// Unmanaged is how many objects there are where copies are that say of themselves that they are none: somebody else's.
	Unmanaged int `json:"unmanaged"`
}

// Compare compares until the two are equal, or the time is over. The error says why they could not be compared.
func Compare(ctx context.Context, hub, spoke *cluster.Client, agent agents.Agent, o Options) (Result, error) {
	result := Result{Agent: agent.Name, Mode: agent.Mode, Differences: []Difference{}}
	if _, err := spoke.Get(ctx, ca.AgentSecret); err != nil { // it is asked once before it is followed, so that who cannot ask learns it now
		return result, err
	}
	within, cancel := context.WithTimeout(ctx, o.Wait)
	defer cancel()
	found, err := pair(hub, spoke, agent, o).WaitUntil(within, func(all []verify.Difference) bool { return !slices.ContainsFunc(all, counts) })
	switch {
	case err != nil && ctx.Err() == nil && within.Err() != nil: // what was not ready says no more than that
		return result, fmt.Errorf("agent %s: not compared: an API server has not answered within %s: wait longer by --wait, or look at it: %w", agent.Name, o.Wait, err)
	case err != nil:
		return result, fmt.Errorf("agent %s: not compared: %w", agent.Name, err)
	}
	for _, d := range found {
		if counts(d) {
			result.Differences = append(result.Differences, Difference{d.Facet, d.Key, d.What()})
		} else {
			result.Unmanaged++
		}
	}
	return result, nil
}

// counts reports whether a difference is one. An object that was made from none, and for which there is none, is the cluster's own.
func counts(d verify.Difference) bool {
	return d.Source != converge.State{} || d.Replica.UID != ""
}

// pair returns what is compared.
func pair(hub, spoke *cluster.Client, agent agents.Agent, o Options) verify.Pair {
	p := verify.Pair{
		Hub:   verify.Site{Config: hub.Config(), Namespace: hub.Namespace, Mapping: mapping.ByNamespace{}},
		Spoke: verify.Site{Config: spoke.Config(), Namespace: spoke.Namespace, Mapping: mapping.ByNamespace{Spoke: spoke.Namespace}},
		Agent: agent.Name, Mode: facets.Mode(agent.Mode), Selector: o.Selector, Server: agent.Server, ApplicationNamespace: spoke.Namespace,
	}
	if o.ByDestination && p.Mode == facets.Managed {
		all := func(string) bool { return true }
		p.Hub.Mapping, p.Spoke.Mapping = mapping.ByDestination{Hub: hub.Namespace, Allowed: all}, mapping.ByDestination{Spoke: spoke.Namespace, Allowed: all}
		p.ApplicationNamespace = ""
	}
	return p
}
