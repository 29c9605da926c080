package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/argocd"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/installation"
)

const (
	// installTimeout is how long it may take until the Application is Synced and Healthy.
	installTimeout = 20 * time.Minute
	// endTimeout is how long the end may take.
	endTimeout = 5 * time.Minute
)

// run shows the demo until ctx ends, which is no error.
func run(ctx context.Context, out io.Writer) (err error) {
	began := time.Now()
	progress := func(line string) {
		_, _ = fmt.Fprintf(out, "demo-cluster: %5.1fs  %s\n", time.Since(began).Seconds(), line)
	}
	progress("starting a hub and a spoke, with a node each; Ctrl-C stops everything")
	l, err := installation.Start(ctx, "hub", "spoke")
	if err != nil {
		return silenceInterrupt(ctx, err)
	}
	defer func() {
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
		defer cancel()
		err = errors.Join(err, l.Close(ending))
		progress("everything is stopped and removed")
	}()
	g, err := install(ctx, l, progress)
	if err != nil {
		return silenceInterrupt(ctx, err)
	}
	if err := show(ctx, out, l, g, time.Since(began)); err != nil {
		return silenceInterrupt(ctx, err)
	}
	<-ctx.Done()
	return nil
}

// install does what the page says, step by step.
func install(ctx context.Context, l *installation.Lab, progress func(string)) (*installation.Guide, error) {
	ctx, cancel := context.WithTimeout(ctx, installTimeout)
	defer cancel()
	progress("the nodes are ready; building programs and images")
	reader, err := l.Reader(ctx)
	if err != nil {
		return nil, err
	}
	g, err := reader.Guide("getting-started.md")
	if err != nil {
		return nil, err
	}
	for _, step := range []struct{ doing, with string }{
		{"installing Argo CD, on the hub and its core on the spoke", "create namespace argocd"},
		{"installing the hub's chart", "helm install argocd-agent " + l.Chart("hub")},
		{"having the UI read by redisproxy", "patch configmap argocd-cmd-params-cm"},
		{"creating the agent berlin, and installing the spoke's chart", "agent create berlin"},
		{"creating an Application on the hub", "kind: Application"},
	} {
		progress(step.doing)
		if _, err := g.Run(ctx, step.with); err != nil {
			return nil, err
		}
	}
	if err := g.ConfigureArgoCD(ctx); err != nil {
		return nil, err
	}
	for i, at := range []string{"berlin", installation.Namespace} {
		if _, err := l.Sites[i].Wait(ctx, argocd.Named(at, "guestbook"), argocd.SyncedAndHealthy); err != nil {
			return nil, fmt.Errorf("%w\n%s", err, l.Sites[i].Explain(context.WithoutCancel(ctx)))
		}
	}
	progress("the Application is Synced and Healthy on both sides")
	return g, nil
}

// show prints what there is, how long it took to be so, and where to look around.
func show(ctx context.Context, out io.Writer, l *installation.Lab, g *installation.Guide, took time.Duration) error {
	hub, spoke := l.Sites[0], l.Sites[1]
	rows := []string{"", "APPLICATION\tON THE HUB\tON THE SPOKE"}
	onHub, err := hub.Get(ctx, argocd.Named("berlin", "guestbook"))
	if err != nil {
		return err
	}
	onSpoke, err := spoke.Get(ctx, argocd.Named(installation.Namespace, "guestbook"))
	if err != nil {
		return err
	}
	address, password, err := hub.Login(ctx)
	if err != nil {
		return err
	}
	rows = append(rows, "berlin/guestbook\t"+state(onHub)+"\t"+state(onSpoke), "",
		"From nothing to this\t"+fmt.Sprintf("%.0f s", took.Seconds()),
		"Argo CD of the hub\thttp://"+address+"/api/v1/applications   (the API: user admin, password "+password+"; its Go module comes without the UI's pages)",
		"A shell\t"+g.Shell.Command(),
		"  there\tkubectl --context hub get applications,pods -A", "\tkubectl --context spoke get applications,pods -A",
		"\tkubectl --context spoke logs -n guestbook deployment/guestbook-ui", "\tkubectl --context spoke exec -it -n guestbook deployment/guestbook-ui -- sh",
		"\thelm test argocd-agent --kube-context hub -n argocd --logs", "\targocd-agentctl agent list --principal-context hub",
		"Git repository\t"+g.Git.URL, "Logs\t"+l.Host.Logs(), "", "Ctrl-C stops everything and leaves nothing behind.")
	table := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	if _, err := io.WriteString(table, strings.Join(rows, "\n")+"\n"); err != nil {
		return err
	}
	return table.Flush()
}

func state(application *unstructured.Unstructured) string {
	return argocd.Sync(application) + ", " + argocd.Health(application)
}

// silenceInterrupt turns the error that Ctrl-C caused into none.
func silenceInterrupt(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return err
	}
	return nil
}
