// Command bench measures the principal and an agent on real API servers, and beside them, in the same run and on the same
// servers, the least that the same work can take.
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
	code := program.Main(ctx, newCommand(), os.Args[1:])
	stop()
	os.Exit(code)
}
