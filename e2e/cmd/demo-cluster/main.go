// Command demo-cluster installs the product as docs/getting-started.md says, on real nodes that it makes on this machine: a hub and a spoke. It
// keeps them running, to be looked at, until Ctrl-C. What command demo shows, it shows in Pods.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	if err := run(ctx, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "demo-cluster:", err)
		os.Exit(1)
	}
}
