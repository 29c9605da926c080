// Command certmanager runs cert-manager's own controllers for issuers and certificate requests: those that approve requests and check
// issuers, and the CA issuer. cert-manager's command is in a module of its own that the module proxy does not have; it does what is done
// here, for all of the controllers, most of which are for ACME and for clouds.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/cert-manager/cert-manager/pkg/controller"
	"github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/approver"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/ca" // registers itself
	_ "github.com/cert-manager/cert-manager/pkg/controller/issuers"                // registers itself
	_ "github.com/cert-manager/cert-manager/pkg/issuer/ca"                         // registers itself
	logf "github.com/cert-manager/cert-manager/pkg/logs"
	"github.com/spf13/pflag"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "cert-manager:", err)
		os.Exit(1)
	}
}

// workers is how many objects each controller works on at a time.
const workers = 5

func run(ctx context.Context, args []string) error {
	flags := pflag.NewFlagSet("cert-manager", pflag.ContinueOnError)
	kubeconfig := flags.String("kubeconfig", "", "kubeconfig of the cluster")
	namespace := flags.String("namespace", "", "the one namespace to work in; all if empty")
	approve := flags.Bool("approve", true, "approve every request, as cert-manager does by default")
	if err := flags.Parse(args); err != nil {
		return err
	}
	factory, err := controller.NewContextFactory(logf.NewContext(ctx, logf.Log, "controller"), controller.ContextOptions{
		Kubeconfig: *kubeconfig, Namespace: *namespace,
	})
	if err != nil {
		return err
	}
	shared, err := factory.Build()
	if err != nil {
		return err
	}
	var all []controller.Interface
	for name, construct := range controller.Known() {
		if name == approver.ControllerName && !*approve {
			continue
		}
		made, err := construct(factory)
		if err != nil {
			return fmt.Errorf("controller %s: %w", name, err)
		}
		all = append(all, made)
	}
	shared.SharedInformerFactory.Start(ctx.Done())
	shared.KubeSharedInformerFactory.Start(ctx.Done())
	return runAll(ctx, all)
}

// runAll runs controllers until the context ends, or one of them does.
func runAll(ctx context.Context, all []controller.Interface) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	errs := make([]error, len(all))
	var group sync.WaitGroup
	for i, c := range all {
		group.Go(func() {
			defer cancel()
			errs[i] = c.Run(workers, ctx)
		})
	}
	group.Wait()
	return errors.Join(errs...)
}
