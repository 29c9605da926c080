// Package hostile_test plays peers that lie against the real other side: a principal that lies to real agents, and agents that
// lie to a real principal, each with real API servers behind it. Its rows are the table of lies in docs/security.md.
package hostile_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab"
)

// timeout is how long anything may take on a busy machine. Nothing waits longer than it must.
const timeout = 5 * time.Minute

// played is the stage of all rows, made by TestMain.
var played *stage //nolint:gochecknoglobals // TestMain has no other way to hand something to tests

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) (code int) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	l, err := lab.Start(ctx, lab.Options{Spokes: []string{managedSpoke, autonomousSpoke}, Direct: true})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() {
		if code != 0 {
			fmt.Fprintln(os.Stderr, l.Report())
		}
		if err := l.Close(); err != nil {
			fmt.Fprintln(os.Stderr, "close the lab:", err)
			code = 1
		}
	}()
	var leave func()
	if played, leave, err = newStage(ctx, l); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer leave()
	return m.Run()
}
