package syncmetrics

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/converge"
)

// pausedDeletions is a gauge of deletions that wait for an operator, by facet and agent. A limited number of agents have series
// of their own; the others' deletions are added up under an empty name. It is safe for concurrent use.
type pausedDeletions struct {
	gauge *prometheus.GaugeVec
	limit int // of agents with series of their own

	mu     sync.Mutex
	paused map[pausedKey]pausedCount // guarded by mu
	named  map[string]int            // of how many facets agents have series of their own. Guarded by mu
}

// pausedKey names deletions that are paused together.
type pausedKey struct {
	facet converge.Facet
	agent string
}

// pausedCount is how many deletions are paused, and which agent their series names.
type pausedCount struct {
	deletions int
	label     string
}

func newPausedDeletions(gauge *prometheus.GaugeVec, limit int) *pausedDeletions {
	return &pausedDeletions{gauge: gauge, limit: limit, paused: make(map[pausedKey]pausedCount), named: make(map[string]int)}
}

// set sets how many deletions of an agent's facet wait.
func (p *pausedDeletions) set(f converge.Facet, agent string, deletions int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	k := pausedKey{f, agent}
	count, known := p.paused[k]
	if !known && (p.named[agent] > 0 || len(p.named) < p.limit) {
		count.label = agent
		p.named[agent]++
	}
	p.gauge.WithLabelValues(string(f), count.label).Add(float64(deletions - count.deletions))
	count.deletions = deletions
	p.paused[k] = count
}

// clear says that no deletions of an agent's facet wait.
func (p *pausedDeletions) clear(f converge.Facet, agent string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	k := pausedKey{f, agent}
	count, known := p.paused[k]
	switch {
	case !known:
		return
	case count.label == "":
		p.gauge.WithLabelValues(string(f), "").Sub(float64(count.deletions))
	default:
		p.gauge.DeleteLabelValues(string(f), agent)
		if p.named[agent]--; p.named[agent] == 0 {
			delete(p.named, agent)
		}
	}
	delete(p.paused, k)
}
