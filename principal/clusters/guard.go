package clusters

import (
	"fmt"
	"strconv"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/argocd"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/converge"
)

// guardLimits are the limits of the deletion guard that a cluster Secret sets.
type guardLimits struct {
	floor, share *int   // nil if it does not say
	fault        string // what is wrong with one; empty if nothing is
}

// readGuardLimits reads the annotations of a cluster Secret. One that is invalid sets nothing.
func readGuardLimits(annotations map[string]string) guardLimits {
	var g guardLimits
	read := func(annotation string, most int) *int {
		text, ok := annotations[annotation]
		if !ok {
			return nil
		}
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 || n > most {
			g.fault = fmt.Sprintf("annotation %s: %.20q: want a number from 0 to %d", annotation, text, most)
			return nil
		}
		return &n
	}
	g.floor, g.share = read(argocd.AnnotationGuardFloor, 1<<30), read(argocd.AnnotationGuardShare, 100)
	return g
}

// Guard returns the limits of the deletion guard for an agent: those that its cluster Secret sets, and else these.
func (c *Clusters) Guard(agent string, otherwise converge.Guard) converge.Guard {
	if all := c.validOf(agent); len(all) > 0 {
		limits := all[0].guard
		if limits.floor != nil {
			otherwise.Floor = *limits.floor
		}
		if limits.share != nil {
			otherwise.Share = *limits.share
		}
	}
	return otherwise
}
