// Command tools builds the real programs that the lab runs into the user's cache, where later runs find them. With -slow it builds
// those too that slow tests alone need.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/toolset"
)

func main() {
	slow := flag.Bool("slow", false, "build what slow tests alone need, too")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *slow); err != nil {
		fmt.Fprintln(os.Stderr, "tools:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, slow bool) error {
	repository, err := toolset.Repository()
	if err != nil {
		return err
	}
	var more []string
	if slow {
		more = toolset.Slow()
	}
	set, err := toolset.Locate(repository, more...)
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
