// Command principal runs on the hub. Agents connect to it; it keeps the hub's applications and those of their spokes
// equal.
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
