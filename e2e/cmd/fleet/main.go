// Command fleet is thousands of agents that connect to one principal, without a cluster behind any of them. It is a program of
// its own for tests, whose race detector takes no more than 8,128 goroutines.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"syscall"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/fleet"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/pki"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "fleet:", err)
		os.Exit(1)
	}
}

// run has agents connect, and stay until the context ends.
func run(ctx context.Context, args []string, out io.Writer) error {
	if len(args) != 4 {
		return errors.New("want the address of a principal, files of a CA's certificate and key, and a number of agents")
	}
	count, err := strconv.Atoi(args[3])
	if err != nil {
		return fmt.Errorf("number of agents: %w", err)
	}
	ca, err := load(args[1], args[2])
	if err != nil {
		return err
	}
	names := make([]string, count)
	for i := range names {
		names[i] = fmt.Sprintf("light-%05d", i)
	}
	agents, err := fleet.New(fleet.Options{Address: args[0], CA: ca, Names: names})
	if err != nil {
		return err
	}
	agents.Start(ctx)
	defer agents.Close()
	if err := agents.WaitConnected(ctx); err != nil {
		return err
	}
	if _, err := fmt.Fprintln(out, fleet.ConnectedLine); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

func load(certificate, key string) (*pki.CA, error) {
	certificatePEM, err := os.ReadFile(certificate)
	if err != nil {
		return nil, err
	}
	keyPEM, err := os.ReadFile(key)
	if err != nil {
		return nil, err
	}
	return pki.LoadCA(certificatePEM, keyPEM)
}
