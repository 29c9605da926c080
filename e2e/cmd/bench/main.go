// Command bench measures the principal and an agent on real API servers, and beside them, in the same run and on the same
// servers, the least that the same work can take.
package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"syscall"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/cmd/bench/relay"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/settings"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := do(ctx, os.Args[1:]); err != nil && !errors.Is(err, settings.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// do measures; or it is one of the programs that are measured.
func do(ctx context.Context, args []string) error {
	if len(args) == 3 && args[0] == relay.Command {
		var config net.ListenConfig
		listener, err := config.Listen(ctx, "tcp", args[1])
		if err != nil {
			return err
		}
		return relay.Serve(ctx, listener, args[2])
	}
	options, err := parse(args, os.Stdout)
	if err != nil {
		return err
	}
	return run(ctx, options, os.Stdout)
}
