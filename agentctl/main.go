// Command agentctl, built as argocd-agentctl, is for operators who set up a hub and its spokes: it keeps the CA and
// the certificates, and registers agents on the hub.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/commands"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/program"
)

func main() {
	klog.SetLogger(logr.Discard()) // what fails in Kubernetes' libraries is told by the command that it fails
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := program.Main(ctx, commands.New(os.Environ()), os.Args[1:])
	stop()
	os.Exit(code)
}
