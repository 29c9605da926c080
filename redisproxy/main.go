// Command redisproxy runs on the hub. To argocd-server it is Redis: what belongs to an agent's applications it has from the
// agent, through the principal, and everything else from the hub's own Redis.
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
