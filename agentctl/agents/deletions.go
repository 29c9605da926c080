package agents

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/cluster"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/guard"
)

// Deletions returns the deletions that the guard of the principal holds, of one agent or of all if the name is empty, sorted by agent
// and facet.
func Deletions(ctx context.Context, hub *cluster.Client, name string) ([]guard.Held, error) {
	if name != "" {
		if _, err := ParseName(hub, name); err != nil {
			return nil, err
		}
	}
	all, err := heldDeletions(ctx, hub)
	held := []guard.Held{}
	for _, agent := range slices.Sorted(maps.Keys(all)) {
		if name == "" || name == agent {
			held = append(held, all[agent]...)
		}
	}
	return held, err
}

// heldDeletions returns the deletions that the guard of the principal holds, by agent.
func heldDeletions(ctx context.Context, hub *cluster.Client) (map[string][]guard.Held, error) {
	shown, err := hub.ConfigMapData(ctx, guard.HeldConfigMap)
	if err != nil {
		return nil, err
	}
	byAgent := make(map[string][]guard.Held)
	for _, held := range guard.ReadHeld(shown) {
		byAgent[held.Agent] = append(byAgent[held.Agent], held)
	}
	return byAgent, nil
}

// ReleaseDeletions has the principal do these deletions, and no others that the guard may hold by then.
func ReleaseDeletions(ctx context.Context, hub *cluster.Client, held []guard.Held) error {
	_, err := hub.ChangeConfigMap(ctx, guard.ConfigMap, func(data map[string]string) bool {
		for _, h := range held {
			data[h.Key()] = h.Token
		}
		return len(held) > 0
	})
	return err
}

// heldProblems says that the guard holds deletions of an agent's.
func (k *hubState) heldProblems(agent string) []string {
	var problems []string
	for _, held := range k.held[agent] {
		problems = append(problems, fmt.Sprintf("%s: %s: show them with: argocd-agentctl guard list %s", held.Facet, held.Summary(), agent))
	}
	return problems
}

// heldCount returns how many deletions of an agent's the guard holds.
func (k *hubState) heldCount(agent string) int {
	n := 0
	for _, held := range k.held[agent] {
		n += held.Deletions
	}
	return n
}
