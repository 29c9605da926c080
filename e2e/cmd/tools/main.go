// Command tools builds the real programs that the lab runs into the user's cache, where later runs find them. With -slow it builds
// those too that slow tests alone need.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"syscall"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/toolset"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "tools:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	slow := slices.Equal(args, []string{"-slow"})
	if len(args) > 0 && !slow {
		return errors.New("want no argument, or -slow")
	}
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
