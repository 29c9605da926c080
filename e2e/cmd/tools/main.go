// Command tools builds the real programs that the lab runs into the user's cache, where later runs find them.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/toolset"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "tools:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	repository, err := toolset.Repository()
	if err != nil {
		return err
	}
	set, err := toolset.Locate(repository)
	if err != nil {
		return err
	}
	progress := func(line string) { fmt.Println("tools:", line) }
	if err := toolset.Install(ctx, progress); err != nil {
		return err
	}
	if err := set.Build(ctx, progress); err != nil {
		return err
	}
	progress("ready")
	return nil
}
