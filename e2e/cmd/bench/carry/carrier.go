package carry

import (
	"context"
	"time"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/cmd/bench/contest"
)

// direction is what is carried: Applications down to the spoke, or their statuses up to the hub.
type direction int

const (
	down direction = iota
	up
)

// carrier is one who is measured: it makes hub and spoke alike.
type carrier interface {
	// carry begins to carry in a direction, and may stop in the other. It returns when what is written from then on is carried.
	carry(ctx context.Context, d direction) error
	// begin brings what the hub has to a spoke that has nothing of it yet, and returns the time at which that began. It may
	// still be going on when begin returns.
	begin(ctx context.Context) (time.Time, error)
	// restart restarts what carries down and returns when it is connected again.
	restart(ctx context.Context) (restarted, error)
	// rest stops all of it.
	rest(ctx context.Context) error
	observed
}

// observed is what there is to see of a carrier from outside.
type observed interface {
	// processes are those that run for it outside of the benchmark's own, by the names that they have in figures.
	processes() []contest.Program
	// report is what a person wants to see when a measurement has failed.
	report() string
}

// restarted tells of a restart.
type restarted struct {
	began   time.Time    // of the new life
	traffic func() int64 // bytes moved between the clusters since then
}
