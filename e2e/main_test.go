// Package e2e_test holds the end-to-end tests: what a person would do on real API servers with real Argo CD, and what
// must come of it. All of them share one lab, so each works in Applications and namespaces of its own name.
package e2e_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab"
)

// startTimeout is how long the lab may take to start, with principal and agent built from scratch.
const startTimeout = 5 * time.Minute

// shared is the lab of all tests, made by TestMain before any of them runs.
var shared *lab.Lab //nolint:gochecknoglobals // TestMain has no other way to hand something to tests

func TestMain(m *testing.M) { os.Exit(runWithLab(m)) }

func runWithLab(m *testing.M) (code int) {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	var err error
	shared, err = lab.Start(ctx, lab.Options{
		Spokes: []string{"a", "b"}, ArgoCD: true, Pods: true, Agents: true, Audit: true,
		Progress: func(line string) { fmt.Println("lab:", line) },
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() {
		if err := shared.Close(); err != nil {
			fmt.Fprintln(os.Stderr, "close the lab:", err)
			code = 1
		}
	}()
	return m.Run()
}
