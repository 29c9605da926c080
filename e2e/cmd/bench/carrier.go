package main

import (
	"context"
	"time"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/process"
)

// direction is what is carried: Applications down to the spoke, or their statuses up to the hub.
type direction int

const (
	down direction = iota
	up
)

// carrier is one who is measured: it makes hub and spoke alike.
type carrier interface {
	// carry begins to carry in a direction, and may stop to in the other. It returns when all begins to flow.
	carry(ctx context.Context, d direction) error
	// restart restarts what carries down and returns when it is connected again.
	restart(ctx context.Context) (restarted, error)
	// rest stops all of it.
	rest(ctx context.Context) error
	// processes are those that run for it outside of the benchmark, by what figures call them.
	processes() []program
	// report is what a person wants to see when a measurement has failed.
	report() string
}

// contender makes carriers of one kind, a new one for each measurement. Whether bytes between the clusters are counted is
// said then: it takes a link, and a link takes time.
type contender struct {
	name string // as people call it
	make func(ctx context.Context, counted bool) (carrier, error)
}

// program is a running program by the name that figures call it.
type program struct {
	name string
	*process.Process
}

// restarted tells of a restart.
type restarted struct {
	began   time.Time    // of the new life
	traffic func() int64 // bytes moved between the clusters since then
}
