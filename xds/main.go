// Command xds runs on the hub beside several principals. It tells Envoy, and gRPC without a proxy, which of them holds the tunnel of which
// agent (xDS), so that what is for an agent takes no detour. Without it everything works, with one hop more.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/program"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := program.Main(ctx, newCommand(os.Environ()), os.Args[1:])
	stop()
	os.Exit(code)
}
