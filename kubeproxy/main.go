// Command kubeproxy runs on the hub. To argocd-server, and to kubectl, it is the API server of a spoke: it passes requests
// through the principal to the agent that is meant.
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
