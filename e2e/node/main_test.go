// Package node_test holds the tests of the lab's real nodes, and of what runs on them. All of them share three clusters, so each works in
// namespaces of its own.
package node_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/installation"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/node"
)

// timeout is how long anything may take on a machine that is busy with other tests, and builds the programs for the first time.
const timeout = 15 * time.Minute

//nolint:gochecknoglobals // TestMain has no other way to hand something to tests
var (
	shared            *installation.Lab
	hub, spoke, tokyo *installation.Site // the clusters of all tests
)

func TestMain(m *testing.M) {
	if err := node.Unsupported(); err != nil {
		fmt.Println("SKIP: there are no real nodes here:", err)
		return
	}
	if os.Getenv(abandon) != "" {
		os.Exit(abandoned())
	}
	os.Exit(run(m))
}

// abandon is the variable by which TestWhatIsKilledIsSweptUp starts this program as a lab that it kills.
const abandon = "TEST_ABANDON"

// abandoned starts a node, says which, and waits to be killed.
func abandoned() int {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	l, err := installation.Start(ctx, "hub")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Println("abandoned:", l.Sites[0].Node.Dir(), l.Sites[0].Node.Address)
	<-ctx.Done()
	return 1
}

func run(m *testing.M) int {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	begun := time.Now()
	l, err := installation.Start(ctx, "hub", "spoke", "tokyo")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	shared, hub, spoke, tokyo = l, l.Sites[0], l.Sites[1], l.Sites[2]
	fmt.Printf("lab: three nodes are ready after %s\n", time.Since(begun).Round(time.Millisecond))
	code := m.Run()
	ending, end := context.WithTimeout(context.Background(), timeout)
	defer end()
	if err := l.Close(ending); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}
