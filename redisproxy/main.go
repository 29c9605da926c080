// Command redisproxy runs on the hub. To argocd-server it is Redis: what belongs to an agent's applications it has from the
// agent, through the principal, and everything else from the hub's own Redis.
package main

import (
	"context"
	"os"
	"os/signal"
	"runtime"
	"syscall"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/program"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// Nearly all of its time goes into system calls. Beside those whom it serves, on a machine of few cores, threads that
	// wake each other up cost more than they bring.
	if _, decided := os.LookupEnv("GOMAXPROCS"); !decided {
		runtime.GOMAXPROCS(max(1, runtime.GOMAXPROCS(0)/2))
	}
	code := program.Main(ctx, newCommand(os.LookupEnv))
	stop()
	os.Exit(code)
}
