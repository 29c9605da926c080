// Command demo-cluster installs the product as docs/getting-started.md says, on real nodes that it makes on this machine: a hub and a spoke. It
// keeps them running, to be looked at, until Ctrl-C. What command demo shows, it shows in Pods. With --sweep it removes what
// others left that were killed, and starts nothing.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"syscall"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/node"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	if err := command(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "demo-cluster:", err)
		os.Exit(1)
	}
}

// command does what its arguments say.
func command(ctx context.Context, args []string, out io.Writer) error {
	sweep := slices.Equal(args, []string{"--sweep"})
	if len(args) > 0 && !sweep {
		return errors.New("want no argument, or --sweep")
	}
	if err := node.Unsupported(); err != nil {
		return err
	}
	if sweep {
		return node.Sweep(ctx)
	}
	return run(ctx, out)
}
