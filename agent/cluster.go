package main

import (
	"fmt"
	"maps"
	"slices"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/settings"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/argocd"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/wire"
)

// clusterSettings are what an operator of the spoke says of its cluster, where the hub lets agents register theirs.
type clusterSettings struct{ labels, annotations []string }

func (s *clusterSettings) declare(set *settings.Set) {
	set.Strings(&s.labels, "cluster-labels", "ARGOCD_AGENT_CLUSTER_LABELS", nil,
		"labels, as key=value, for the cluster Secret on a hub that lets agents register themselves; those count that its principal allows",
		checkClusterKeys(func(pairs []string) (map[string]string, error) {
			keys, err := argocd.ParseClusterKeys(pairs, nil)
			return keys.Labels, err
		}, argocd.CheckAgentLabel))
	set.Strings(&s.annotations, "cluster-annotations", "ARGOCD_AGENT_CLUSTER_ANNOTATIONS", nil,
		"annotations, as key=value, for the same Secret, as --cluster-labels",
		checkClusterKeys(func(pairs []string) (map[string]string, error) {
			keys, err := argocd.ParseClusterKeys(nil, pairs)
			return keys.Annotations, err
		}, argocd.CheckAgentAnnotation))
}

// checkClusterKeys accepts what a principal could allow.
func checkClusterKeys(parse func([]string) (map[string]string, error), check func(key, value string) error) settings.Check[[]string] {
	return func(pairs []string) error {
		parsed, err := parse(pairs)
		if err != nil {
			return err
		}
		if len(parsed) > argocd.MaxClusterKeys {
			return fmt.Errorf("want %d at most", argocd.MaxClusterKeys)
		}
		for _, key := range slices.Sorted(maps.Keys(parsed)) {
			if err := check(key, parsed[key]); err != nil {
				return err
			}
		}
		return nil
	}
}

// tell puts what is said of the cluster into a hello.
func (s *clusterSettings) tell(h *wire.Hello) {
	keys, _ := argocd.ParseClusterKeys(s.labels, s.annotations) // which was checked
	h.ClusterLabels, h.ClusterAnnotations = keys.Labels, keys.Annotations
}
