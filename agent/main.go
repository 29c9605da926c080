// Command agent runs on a spoke. It connects to the principal on the hub, and keeps the spoke's applications and those of
// the hub equal.
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
	s, err := readSettings(os.Args[1:], os.LookupEnv)
	switch {
	case errors.Is(err, settings.ErrHelp):
		_, _ = os.Stdout.WriteString(s.help)
		return
	case err == nil:
		err = run(ctx, s, os.Stderr)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "agent:", err)
		os.Exit(1)
	}
}
