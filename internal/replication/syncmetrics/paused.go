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

// pausedCount is how many deletions are paused, and whether they have a series of their own.
type pausedCount struct {
	deletions int
	own       bool
}

// series is that of a count: its own, or that of all agents beyond the limit.
func (p *pausedDeletions) series(k pausedKey, c pausedCount) prometheus.Gauge {
	if c.own {
		return p.gauge.WithLabelValues(string(k.facet), k.agent)
	}
	return p.gauge.WithLabelValues(string(k.facet), "")
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
		count.own = true
		p.named[agent]++
	}
	p.series(k, count).Add(float64(deletions - count.deletions))
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
	case !count.own:
		p.series(k, count).Sub(float64(count.deletions))
	default:
		p.gauge.DeleteLabelValues(string(f), agent)
		if p.named[agent]--; p.named[agent] == 0 {
			delete(p.named, agent)
		}
	}
	delete(p.paused, k)
}
