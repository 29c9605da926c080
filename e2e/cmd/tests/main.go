// Command tests runs `go test` with the arguments that it is given, prints what that would print, and says at the end what was skipped
// and why, and what has failed. `go test` itself names what it skips only where it prints all that tests say.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"
)

// grace is how long tests that are interrupted have to end.
const grace = time.Minute

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	if err := run(ctx, os.Stdout, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "go test:", err)
		os.Exit(1)
	}
}

// run runs the tests, and fails as `go test` does.
func run(ctx context.Context, to io.Writer, args []string) error {
	cmd := exec.CommandContext(ctx, "go", append([]string{"test", "-json"}, args...)...) //nolint:gosec // whoever runs this says what to test
	cmd.Stderr = os.Stderr
	// `go test` waits for the program that it runs and tells it nothing: an interrupt is for the whole group.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGINT) }
	cmd.WaitDelay = grace
	events, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	r := newReport(to)
	unread := r.read(events)
	failed := cmd.Wait()
	r.sum()
	return errors.Join(failed, unread)
}
