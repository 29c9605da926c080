// Command agentctl, built as argocd-agentctl, is for operators who set up a hub and its spokes: it keeps the CA and
// the certificates, and registers agents on the hub.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/commands"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/program"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := program.Main(ctx, commands.New(os.Environ()), os.Args[1:])
	stop()
	os.Exit(code)
}
