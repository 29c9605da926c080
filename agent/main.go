// Command agent runs on a spoke. It connects to the principal on the hub, and keeps the spoke's applications and those of
// the hub equal.
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
