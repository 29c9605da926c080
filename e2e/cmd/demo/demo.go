package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/argocd"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/cluster"
)

// syncTimeout is how long the Applications may take to be Synced and Healthy everywhere.
const syncTimeout = 3 * time.Minute

// spokes are the names of the spokes, of their agents, and of the agents' namespaces on the hub.
func spokes() []string { return []string{"berlin", "tokyo"} }

// applications are what is created on the hub for each spoke: name => path in the Git repository.
func applications() map[string]string {
	return map[string]string{"guestbook": lab.GuestbookPath, "settings": lab.ConfigPath}
}

// run shows the demo until ctx ends, which is no error.
func run(ctx context.Context, out io.Writer) (err error) {
	began := time.Now()
	progress := func(line string) {
		_, _ = fmt.Fprintf(out, "demo: %5.1fs  %s\n", time.Since(began).Seconds(), line)
	}
	progress("starting a hub and two spokes; Ctrl-C stops everything")
	l, err := lab.Start(ctx, lab.Options{Spokes: spokes(), ArgoCD: true, Pods: true, Agents: true, Progress: progress})
	if err != nil {
		return silenceInterrupt(ctx, err)
	}
	defer func() {
		err = errors.Join(err, l.Close())
		progress("everything is stopped and removed")
	}()
	if err := show(ctx, l, progress); err != nil {
		return silenceInterrupt(ctx, fmt.Errorf("%w\n%s", err, l.Report()))
	}
	if err := printTable(ctx, out, l); err != nil {
		return silenceInterrupt(ctx, err)
	}
	if err := printGuide(out, l); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// show creates the Applications on the hub and waits until they are Synced and Healthy on both sides.
func show(ctx context.Context, l *lab.Lab, progress func(string)) error {
	ctx, cancel := context.WithTimeout(ctx, syncTimeout)
	defer cancel()
	for _, spoke := range spokes() {
		for name, path := range applications() {
			err := l.Hub.Apply(ctx, argocd.New(argocd.Application{
				Namespace: spoke, Name: name, RepoURL: l.Git.URL, Path: path, Destination: spoke, Into: name,
			}))
			if err != nil {
				return err
			}
		}
	}
	progress("Applications are created on the hub")
	work, ctx := errgroup.WithContext(ctx)
	for _, spoke := range spokes() {
		work.Go(func() error { return waitSyncedAndHealthy(ctx, l.Hub, spoke) })
		work.Go(func() error { return waitSyncedAndHealthy(ctx, l.Spoke(spoke), lab.Namespace) })
	}
	if err := work.Wait(); err != nil {
		return err
	}
	progress("Applications are Synced and Healthy on hub and spokes")
	return nil
}

// waitSyncedAndHealthy waits until all Applications of a namespace are there, Synced and Healthy.
func waitSyncedAndHealthy(ctx context.Context, c *lab.Cluster, namespace string) error {
	_, err := c.WaitAll(ctx, argocd.All(namespace), func(objects cluster.Objects) bool {
		for name := range applications() {
			if !argocd.SyncedAndHealthy(objects[namespace+"/"+name]) {
				return false
			}
		}
		return true
	})
	return err
}

// silenceInterrupt turns the error that Ctrl-C caused into none.
func silenceInterrupt(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return err
	}
	return nil
}
