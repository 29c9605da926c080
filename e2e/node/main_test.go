// Package node_test holds the tests of the lab's real nodes, and of what runs on them. All of them share two clusters, so each works in
// namespaces of its own.
package node_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/cluster"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/host"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/node"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/toolset"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/pki"
)

// timeout is how long anything may take.
const timeout = 5 * time.Minute

// site is a cluster with its one node.
type site struct {
	*cluster.Cluster

	node *node.Node
}

//nolint:gochecknoglobals // TestMain has no other way to hand something to tests
var (
	hub, spoke site // the clusters of all tests
	machine    *node.Machine
	tools      *toolset.Set
)

func TestMain(m *testing.M) {
	if err := node.Unsupported(); err != nil {
		fmt.Println("SKIP: there are no real nodes here:", err)
		return
	}
	if os.Getenv(abandon) != "" {
		os.Exit(abandoned())
	}
	os.Exit(run(m))
}

// abandon is the variable by which TestWhatIsKilledIsSweptUp starts this program as a lab that it kills.
const abandon = "TEST_ABANDON"

// abandoned starts a node, says which, and waits to be killed.
func abandoned() int {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	end, err := start(ctx, &hub)
	if err != nil {
		fmt.Fprintln(os.Stderr, errors.Join(err, end()))
		return 1
	}
	fmt.Println("abandoned:", hub.node.Dir(), hub.node.Address)
	<-ctx.Done()
	return 1
}

func run(m *testing.M) (code int) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	end, err := start(ctx, &hub, &spoke)
	if err == nil {
		code = m.Run()
	}
	if err := errors.Join(err, end()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// start starts clusters. What it returns ends them, also when it failed.
func start(ctx context.Context, sites ...*site) (end func() error, err error) {
	end = func() error { return nil }
	repository, err := toolset.Repository()
	if err != nil {
		return end, err
	}
	if tools, err = toolset.Locate(repository); err != nil {
		return end, err
	}
	h, err := host.New(host.Options{})
	if err != nil {
		return end, err
	}
	end = h.Close
	if machine, err = node.NewMachine(ctx, h, tools); err != nil {
		return end, err
	}
	end = func() error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
		defer cancel()
		return errors.Join(machine.Close(ctx), h.Close())
	}
	ca, err := pki.NewCA(pki.CAOptions{CommonName: "clusters of the lab"})
	if err != nil {
		return end, err
	}
	var clusters errgroup.Group
	for i, s := range sites {
		name := []string{"hub", "spoke"}[i]
		clusters.Go(func() (err error) {
			s.Cluster, err = cluster.Start(ctx, cluster.Options{Name: name, Host: h, Tools: tools, CA: ca, Nodes: machine.Nodes(name)})
			return err
		})
	}
	if err := clusters.Wait(); err != nil {
		return end, err
	}
	for _, s := range sites {
		begun := time.Now()
		if s.node, err = machine.Join(ctx, s.Cluster); err != nil {
			return end, err
		}
		fmt.Printf("lab: node %s is ready after %s\n", s.Name, time.Since(begun).Round(time.Millisecond))
	}
	return end, nil
}
