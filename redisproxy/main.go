// Command redisproxy runs on the hub. To argocd-server it is Redis: what belongs to an agent's applications it has from the
// agent, through the principal, and everything else from the hub's own Redis.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"syscall"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/settings"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// Nearly all of its time goes into system calls. Beside those whom it serves, on a machine of few cores, threads that
	// wake each other up cost more than they bring.
	if _, decided := os.LookupEnv("GOMAXPROCS"); !decided {
		runtime.GOMAXPROCS(max(1, runtime.GOMAXPROCS(0)/2))
	}
	s, err := readSettings(os.Args[1:], os.LookupEnv)
	switch {
	case errors.Is(err, settings.ErrHelp):
		_, _ = os.Stdout.WriteString(s.help)
		return
	case err == nil:
		err = run(ctx, s, os.Stderr)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "redisproxy:", err)
		os.Exit(1)
	}
}
