// Command bench measures the principal and an agent on real API servers, and beside them, in the same run and on the same
// servers, the least that the same work can take.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/settings"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	options, err := parse(os.Args[1:], os.Stdout)
	if errors.Is(err, settings.ErrHelp) {
		return
	}
	if err == nil {
		err = run(ctx, options, os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}
